-- The parts of a claim: which tasks, and the claim itself. `claim` is made of ready and claimed, `claim_exclusive` of
-- ready_exclusive and claimed. Requests of one HTTP worker may claim in parallel: their claims have a condition, too.

-- name: ready
-- Claim tasks of some queues, and up to `process_slots` of those that need a process: their handlers are process-bound,
-- or they are isolated; none of the handlers that it leaves to other workers. With `other_slots` 0, only these: so a worker that speaks HTTP claims tasks of its handlers.
-- Queue by queue: an index returns each in order. The first tasks of a queue may all be for handlers without a free
-- slot, so a claim scans past some of them, but not past all: with 100,000 of them it takes 0.4 ms, without the bound 24
-- (2026-11, PostgreSQL 18). A scanned row is locked by its ctid: by its key, a task took 3 µs more.
ready AS (
    SELECT t.task_id
    FROM unnest(:queues::text[]) AS served (queue)
    CROSS JOIN (VALUES (false, :other_slots::bigint), (true, :process_slots::bigint)) AS pool (is_process_bound, slots)
    CROSS JOIN LATERAL (
        SELECT locked.task_id, scanned.priority
        FROM (SELECT f.ctid AS row_id, f.task_id, f.priority, f.handler, f.isolation FROM dag_task_queue f
              WHERE f.queue = served.queue AND f.worker_id IS NULL AND f.stop_requested_at IS NULL
                AND f.isolation IS DISTINCT FROM 2
              ORDER BY f.priority DESC, f.task_id
              LIMIT :scan_limit::bigint) scanned
        CROSS JOIN LATERAL (SELECT q.task_id FROM dag_task_queue q
                            WHERE q.ctid = scanned.row_id AND q.lease_token IS NULL AND q.stop_requested_at IS NULL
                            FOR UPDATE SKIP LOCKED) locked
        WHERE (scanned.handler = ANY((SELECT :process_bound::text[])::text[])
               OR (scanned.isolation IS NOT NULL AND :isolates)) = pool.is_process_bound
          AND scanned.handler <> ALL((SELECT :foreign_handlers::text[])::text[])
        -- In the order of the scan, so that no row is locked beyond the limit.
        ORDER BY scanned.priority DESC, scanned.task_id
        LIMIT pool.slots
    ) t
    ORDER BY t.priority DESC, t.task_id
    LIMIT :limit::bigint
)

-- name: ready_exclusive
-- The first task that must be the only one of its worker, and whose handler the worker has, or its package (`name.*`).
ready AS (
    SELECT q.task_id
    FROM dag_task_queue q
    WHERE q.isolation = 2 AND q.worker_id IS NULL AND q.stop_requested_at IS NULL AND dag_is_served(q.queue, :queues::text[])
      AND EXISTS (SELECT FROM dag_workers w
                  WHERE w.worker_id = :worker_id
                    AND (jsonb_exists(w.handlers, q.handler)
                         OR EXISTS (SELECT FROM jsonb_object_keys(w.handlers) AS package (name)
                                  WHERE right(package.name, 2) = '.*' AND starts_with(q.handler, left(package.name, -1)))))
    ORDER BY q.priority DESC, q.task_id
    LIMIT 1
    FOR UPDATE OF q SKIP LOCKED
)

-- name: claimed
-- Claim the tasks that are ready, and return them with their checkpoints. A worker that was expired or drains gets none.
claimed AS (
    UPDATE dag_task_queue q SET worker_id = :worker_id, lease_token = :token, claimed_at = (SELECT clock())
    WHERE q.task_id = ANY(ARRAY(SELECT task_id FROM ready))
      AND EXISTS (SELECT FROM dag_workers w
                  WHERE w.worker_id = :worker_id AND w.stopped_at IS NULL AND w.drain_requested_at IS NULL){condition}
    RETURNING q.task_id, q.job_id, q.node_id, q.attempt, q.handler, q.params, q.secrets, q.timeout_seconds, q.priority,
              q.dispatched_at, q.claimed_at, q.isolation, q.queue
)
SELECT q.queue, coalesce(q.isolation, 0) AS isolation, q.task_id, q.job_id, q.node_id, q.handler, q.attempt,
       q.params, q.secrets, q.timeout_seconds,
       extract(epoch FROM q.dispatched_at)::float8 AS dispatched_at,
       CASE WHEN q.attempt > 1
            THEN (SELECT json_build_object('phase', c.phase, 'data', c.data, 'artifacts', c.artifacts)
                  FROM dag_checkpoints c WHERE c.job_id = q.job_id AND c.node_id = q.node_id) END AS checkpoint,
       coalesce(j.workflow_id || ' v' || j.version, '') AS workflow,
       extract(epoch FROM q.claimed_at)::float8 AS claimed_at, j.trace_parent
FROM claimed q
LEFT JOIN LATERAL (SELECT j.workflow_id, j.version, j.trace_parent FROM dag_jobs j WHERE j.id = q.job_id LIMIT 1) j ON true
ORDER BY q.priority DESC, q.task_id

-- name: is_idle
-- The worker holds no task. No index has the worker of a task: it is only asked while an exclusive task waits.
AND NOT EXISTS (SELECT FROM dag_task_queue h WHERE h.worker_id = :worker_id)

-- name: holds_no_exclusive
-- The worker holds no exclusive task.
AND NOT EXISTS (SELECT FROM dag_task_queue h WHERE h.isolation = 2 AND h.worker_id = :worker_id)
