-- What a server asks and writes for workers that speak HTTP, besides the statements of workers.

-- name: registered
-- A live worker that a key registered over HTTP.
SELECT queues, handlers FROM dag_workers
WHERE worker_id = :worker_id AND registered_by = :registered_by::text AND stopped_at IS NULL

-- name: held_tasks
-- The tasks among these that this worker holds.
SELECT q.task_id::text AS task_id, q.lease_token AS token, q.job_id::text AS job_id, q.node_id, q.attempt, q.handler,
       q.secrets, q.stop_requested_at IS NOT NULL AS is_stopping,
       extract(epoch FROM clock() - coalesce(q.started_at, q.claimed_at))::float8 AS running_seconds, q.timeout_seconds,
       q.progress
FROM unnest(:task_ids::bigint[]) AS n (task_id)
CROSS JOIN LATERAL (SELECT * FROM dag_task_queue q
                    WHERE q.task_id = n.task_id AND q.worker_id = :worker_id LIMIT 1) q

-- name: count_tasks
-- Add to the counters of a worker what this server has seen of it: each server does, so that nothing is counted twice.
UPDATE dag_workers w
SET counters = w.counters || :counters::jsonb
    || (SELECT coalesce(jsonb_object_agg(n.name, coalesce((w.counters ->> n.name)::bigint, 0) + n.number), '{}')
        FROM unnest(:names::text[], :numbers::bigint[]) AS n (name, number))
WHERE w.worker_id = :worker_id

-- name: lock_claims
-- Wait for all claims of a worker, and let those to come wait: until the end of the transaction. The next statement then
-- sees what they claimed.
SELECT pg_advisory_xact_lock(:worker_id::bigint)

-- name: share_claims
-- Wait for a claim of an exclusive task, and let those to come wait.
SELECT pg_advisory_xact_lock_shared(:worker_id::bigint)

-- name: keep_fingerprints
-- Add fingerprints of secrets to the references of held tasks.
-- By key, not by ctid: a row that changes meanwhile also gets its fingerprints.
UPDATE dag_task_queue q
SET secrets = (q.secrets::jsonb || jsonb_build_object(
        'fingerprints', (:fingerprints::text[])[array_position(:task_ids::bigint[], q.task_id)]::jsonb))::json
WHERE q.task_id = ANY(ARRAY(SELECT n.task_id FROM unnest(:task_ids::bigint[]) AS n (task_id)))
  AND q.lease_token = (:tokens::bigint[])[array_position(:task_ids::bigint[], q.task_id)] AND q.worker_id = :worker_id

-- name: keep_receipts
-- Keep the statuses that are reported of held tasks, in the transaction of the report; remove a few old ones.
WITH pruned AS (
    DELETE FROM dag_task_receipts
    WHERE task_id = ANY(ARRAY(SELECT r.task_id FROM dag_task_receipts r WHERE r.task_id < :oldest_id::bigint
                              ORDER BY r.task_id LIMIT 10))
)
INSERT INTO dag_task_receipts (task_id, lease_token, status)
SELECT n.task_id, n.token, n.status
FROM unnest(:task_ids::bigint[], :tokens::bigint[], :statuses::text[]) AS n (task_id, token, status)
CROSS JOIN LATERAL (SELECT q.task_id FROM dag_task_queue q
                    WHERE q.task_id = n.task_id AND q.lease_token = n.token AND q.worker_id = :worker_id
                    FOR UPDATE) q
ON CONFLICT (task_id) DO UPDATE SET lease_token = excluded.lease_token, status = excluded.status

-- name: receipt
-- The status that was reported of a task under this token.
SELECT status FROM dag_task_receipts WHERE task_id = :task_id AND lease_token = :token
