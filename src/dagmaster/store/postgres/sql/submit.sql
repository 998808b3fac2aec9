-- The parts of the statement that stores jobs.

-- name: jobs
-- The jobs, each with its first event.
new AS (
    SELECT * FROM rows(new: {@submitted_rows}) AS n
),
added AS (
    INSERT INTO dag_jobs ({@submitted_columns}, event_seq, created_at, updated_at)
    SELECT {@submitted_values}, 1, now.at, now.at
    FROM new CROSS JOIN (SELECT clock() AS at) AS now
    ON CONFLICT (submitted_by, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, submitted_by, queue, resumed_from, created_at
),
events_appended AS (
    INSERT INTO dag_job_events (job_id, seq, type, at, by, data)
    SELECT id, 1, 'JobSubmitted', created_at, coalesce(nullif(submitted_by, ''), 'anonymous'),
           CASE WHEN resumed_from IS NOT NULL THEN json_build_object('resumed_from', resumed_from::text) END
    FROM added
)

-- name: audited
-- Their audit entries, except for a job whose idempotency key is in use.
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb
    FROM entries JOIN added ON added.id = entries.object_id::bigint
)

-- name: stored
-- The ids of the new jobs. Orchestrators are woken, unless a job was unowned already.
SELECT string_agg(id::text, ',') AS ids,
       CASE WHEN count(*) > 0
             AND (bool_or(queue IS NOT NULL)
                  -- In the order of an index. EXISTS would read the whole table for the first unowned job.
                  OR (SELECT id FROM dag_jobs
                      WHERE owner_id IS NULL AND status IN ('PENDING', 'RUNNING') AND queue IS NULL
                      ORDER BY owner_id, priority DESC, id LIMIT 1) IS NULL)
            THEN pg_notify('dagmaster_jobs', '')::text END AS notified
FROM added
