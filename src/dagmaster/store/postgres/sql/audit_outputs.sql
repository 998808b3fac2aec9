-- Large outputs against rows. The name of an output says which attempt or turn wrote it (ports/output_names.py). An output
-- that is newer than its job was written before commits were lost: by a failover to a standby that had not received them,
-- or by a backup that was restored. As in audit.sql, the comment of a query is its rule.

-- name: outputs_have_rows
-- No large output is newer than the rows of its job: no commit was lost in a failover or a restore.
SELECT o.job_id, o.path AS node_id,
       CASE WHEN j.id IS NULL THEN 'has an output, and the database has no such job'
            WHEN o.of_attempt
            THEN format('has an output of attempt %s, and the database knows %s', o.number, coalesce(n.attempt, 0))
            ELSE format('has a value that was written at event %s of owner epoch %s, and the job is at event %s of epoch %s',
                        o.sequence, o.number, j.event_seq, j.owner_epoch)
       END AS message
FROM unnest(:job_ids::bigint[], :paths::text[], :numbers::bigint[], :sequences::bigint[], :of_attempts::boolean[])
    AS o (job_id, path, number, sequence, of_attempt)
LEFT JOIN LATERAL (SELECT j.id, j.event_seq, j.owner_epoch FROM dag_jobs j WHERE j.id = o.job_id LIMIT 1) j ON true
LEFT JOIN LATERAL (SELECT n.attempt FROM dag_node_states n
                   WHERE o.of_attempt AND n.job_id = o.job_id AND n.node_id = o.path LIMIT 1) n ON true
WHERE j.id IS NULL
   OR (o.of_attempt AND o.number > coalesce(n.attempt, 0))
   OR (NOT o.of_attempt AND (o.number > j.owner_epoch OR o.sequence > j.event_seq))
