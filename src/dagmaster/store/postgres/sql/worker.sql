-- What a worker asks and says. Each write is fenced by the token of its claim.

-- name: register
-- Be known, as alive.
INSERT INTO dag_workers (worker_id, host, pid, version, queues, concurrency, handlers, started_at, heartbeat_at)
VALUES (:worker_id, :host, :pid, :version, :queues::text[], :concurrency, :handlers::jsonb, clock(), clock())

-- name: heartbeat
-- Stay alive, unless it was given up: then nothing comes back. Else the held tasks that are to stop.
-- So are those that are over, or another's by now. One that nobody holds lost its claim in a crash, and is claimed again.
WITH alive AS (
    UPDATE dag_workers SET heartbeat_at = clock(), counters = :counters::jsonb
    WHERE worker_id = :worker_id AND stopped_at IS NULL
    RETURNING worker_id
)
SELECT (SELECT string_agg(held.task_id::text, ',')
        FROM unnest(:task_ids::bigint[]) AS held (task_id)
        -- One by one: a join would read the whole queue.
        LEFT JOIN LATERAL (SELECT * FROM dag_task_queue q WHERE q.task_id = held.task_id LIMIT 1) q ON true
        WHERE q.task_id IS NULL OR q.worker_id <> alive.worker_id OR q.stop_requested_at IS NOT NULL) AS to_stop
FROM alive

-- name: reconcile
-- The connection was lost: with it the answer to a claim, or a report that had not reached the disk of a server that
-- died. What this worker is said to hold and does not know of is handed back. So is all it holds when it leaves.
WITH gone AS (
    DELETE FROM dag_task_queue q
    WHERE q.worker_id = :worker_id AND q.claimed_at <= clock() - make_interval(secs => :seconds)
      AND q.task_id <> ALL(:task_ids::bigint[])
    RETURNING q.*
),
reported AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, worker_id, status, progress, dispatched_at,
                                  claimed_at, reported_at)
    SELECT job_id, node_id, attempt, task_id, queue, worker_id, 'RELEASED', progress, dispatched_at, claimed_at,
           clock()
    FROM gone
    RETURNING job_id
)
SELECT count(*) AS released,
       (SELECT count(pg_notify('dagmaster_owner_' || o.owner_id, 'results'))
        FROM (SELECT DISTINCT j.owner_id FROM dag_jobs j
              WHERE j.id IN (SELECT job_id FROM reported) AND j.owner_id IS NOT NULL) o) AS told
FROM reported

-- name: claim
-- Hold tasks of some queues, and so many at most of those whose handlers run apart.
-- One queue after the other: an index gives each in order. The first of a queue may all be for handlers that are full,
-- so a claim looks past some of them, and not past all: with 100,000 of them it takes 0.4 ms, without the bound 24
-- (2026-11, PostgreSQL 18). What is seen is found again by its place: by its key, a task took 3 µs more.
WITH ready AS (
    SELECT t.task_id
    FROM unnest(:queues::text[]) AS wanted (queue)
    CROSS JOIN (VALUES (false, :most::bigint), (true, :process_slots::bigint)) AS lane (is_process_bound, most)
    CROSS JOIN LATERAL (
        SELECT q.task_id, q.priority
        FROM (SELECT f.ctid AS place, f.task_id, f.priority, f.handler FROM dag_task_queue f
              WHERE f.queue = wanted.queue AND f.worker_id IS NULL AND f.stop_requested_at IS NULL
              ORDER BY f.priority DESC, f.task_id
              LIMIT :seen::bigint) seen
        JOIN dag_task_queue q ON q.ctid = seen.place AND q.worker_id IS NULL AND q.stop_requested_at IS NULL
        WHERE (seen.handler = ANY((SELECT :process_bound::text[])::text[])) = lane.is_process_bound
        ORDER BY seen.priority DESC, seen.task_id
        LIMIT lane.most
        FOR UPDATE OF q SKIP LOCKED
    ) t
    ORDER BY t.priority DESC, t.task_id
    LIMIT :most::bigint
),
claimed AS (
    UPDATE dag_task_queue q SET worker_id = :worker_id, lease_token = :token, claimed_at = clock()
    FROM ready WHERE q.task_id = ready.task_id
      AND EXISTS (SELECT FROM dag_workers w WHERE w.worker_id = :worker_id AND w.stopped_at IS NULL)
    RETURNING q.task_id, q.job_id, q.node_id, q.attempt, q.handler, q.params, q.secrets, q.timeout_seconds, q.priority,
              q.dispatched_at
)
SELECT q.task_id, q.job_id, q.node_id, q.attempt, q.handler, q.params, q.secrets, q.timeout_seconds,
       extract(epoch FROM q.dispatched_at)::float8 AS dispatched_at,
       CASE WHEN c.job_id IS NOT NULL
            THEN json_build_object('phase', c.phase, 'data', c.data, 'artifacts', c.artifacts) END AS checkpoint,
       coalesce(j.workflow_id || ' v' || j.version, '') AS workflow
FROM claimed q
LEFT JOIN dag_jobs j ON j.id = q.job_id
LEFT JOIN dag_checkpoints c ON q.attempt > 1 AND c.job_id = q.job_id AND c.node_id = q.node_id
ORDER BY q.priority DESC, q.task_id

-- name: other_worker_has_handler
-- Whether a task that this worker holds could run at another that lives, serves its queue and has its handler.
SELECT EXISTS (
    SELECT FROM dag_task_queue q
    JOIN dag_workers w ON w.worker_id <> :worker_id AND w.stopped_at IS NULL
                      AND w.counters ->> 'draining' IS DISTINCT FROM 'true'
                      AND (w.queues = '{}' OR q.queue = ANY(w.queues)) AND jsonb_exists(w.handlers, q.handler)
    WHERE q.task_id = :task_id
) AS is_served

-- name: queues_with_tasks
-- The queues that have tasks, each found by one step in an index; but no queue of a `run` that still lives.
WITH RECURSIVE found AS (
    (SELECT queue FROM dag_task_queue WHERE worker_id IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT q.queue FROM dag_task_queue q WHERE q.worker_id IS NULL AND q.queue > f.queue ORDER BY q.queue LIMIT 1)
    FROM found f WHERE f.queue IS NOT NULL
)
SELECT queue FROM found
WHERE queue IS NOT NULL
  AND (queue NOT LIKE 'run:%'
       OR NOT EXISTS (SELECT FROM dag_workers w WHERE found.queue = ANY(w.queues) AND w.stopped_at IS NULL))

-- name: report
-- Take the row away with the token that holds it, and leave the result. The owner of the job is woken, with what was
-- reported if that is little (see ports/result_notifications.py).
WITH said AS (
    SELECT * FROM unnest(:task_ids::bigint[], :tokens::bigint[], :statuses::text[], :permanents::boolean[],
                         :outputs::text[], :output_refs::text[], :errors::text[], :metrics::text[], :versions::text[])
         AS n (task_id, token, status, permanent, output, output_ref, error, metrics, handler_version)
),
gone AS (
    DELETE FROM dag_task_queue q USING said n
    WHERE q.task_id = n.task_id AND q.lease_token = n.token AND q.worker_id = :worker_id
    RETURNING q.task_id, q.job_id, q.node_id, q.attempt, q.queue, q.progress, q.dispatched_at, q.claimed_at, n.status,
              n.permanent, n.output, n.output_ref, n.error, n.metrics, n.handler_version
),
reported AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, worker_id, status, permanent, output,
                                  output_ref, error, metrics, handler_version, progress, dispatched_at, claimed_at,
                                  reported_at)
    SELECT job_id, node_id, attempt, task_id, queue, :worker_id, status, permanent, output::json, output_ref,
           error::json, metrics::json, handler_version, progress, dispatched_at, claimed_at, clock()
    FROM gone
    RETURNING id, task_id, job_id, node_id, attempt, status, permanent, output, output_ref, error, claimed_at, reported_at,
              handler_version
),
-- By itself, so that no output is carried along when nothing is pushed.
spelled AS MATERIALIZED (
    SELECT job_id,
           CASE WHEN :pushes THEN
               json_build_array(id, job_id, node_id, attempt, status, permanent, output::text, output_ref, error::text,
                                extract(epoch FROM claimed_at)::float8, extract(epoch FROM reported_at)::float8,
                                handler_version)::text
           END AS result
    FROM reported
)
SELECT string_agg(task_id::text, ',') AS task_ids,
       (SELECT count(pg_notify('dagmaster_owner_' || o.owner_id,
                               CASE WHEN octet_length(o.results) < 7900 THEN 'results [' || o.results || ']'
                                    ELSE 'results' END))
        FROM (SELECT j.owner_id, string_agg(s.results, ',') AS results
              FROM (SELECT job_id, string_agg(result, ',') AS results FROM spelled GROUP BY job_id) s
              JOIN dag_jobs j ON j.id = s.job_id
              WHERE j.owner_id IS NOT NULL GROUP BY j.owner_id) o) AS told
FROM reported

-- name: release
-- Let go of tasks that never began: they stay where they are in their queue. One that is to stop is reported instead.
WITH free AS (
    UPDATE dag_task_queue q SET worker_id = NULL, lease_token = NULL, claimed_at = NULL
    FROM unnest(:task_ids::bigint[], :tokens::bigint[]) AS n (task_id, token)
    WHERE q.task_id = n.task_id AND q.lease_token = n.token AND q.worker_id = :worker_id
      AND q.stop_requested_at IS NULL
    RETURNING q.task_id, q.queue
)
SELECT string_agg(task_id::text, ',') AS task_ids,
       (SELECT count(pg_notify('dagmaster_tasks', queues.queue)) FROM (SELECT DISTINCT queue FROM free) queues) AS told
FROM free

-- name: append_logs
-- Keep pieces of logs of tasks that are held.
INSERT INTO dag_task_logs (task_id, chunk, job_id, node_id, attempt, at, text)
SELECT q.task_id, n.chunk, q.job_id, q.node_id, q.attempt, clock(), n.text
FROM unnest(:task_ids::bigint[], :tokens::bigint[], :chunks::integer[], :texts::text[])
     AS n (task_id, token, chunk, text)
JOIN dag_task_queue q ON q.task_id = n.task_id AND q.lease_token = n.token
ON CONFLICT DO NOTHING

-- name: checkpoint
-- Keep the newest checkpoint of each task that is held.
INSERT INTO dag_checkpoints (job_id, node_id, attempt, phase, data, artifacts, saved_at)
SELECT q.job_id, q.node_id, q.attempt, n.phase, n.data::json, array(SELECT json_array_elements_text(n.artifacts::json)),
       clock()
FROM unnest(:task_ids::bigint[], :tokens::bigint[], :phases::text[], :data::text[], :artifacts::text[])
     AS n (task_id, token, phase, data, artifacts)
JOIN dag_task_queue q ON q.task_id = n.task_id AND q.lease_token = n.token
ON CONFLICT (job_id, node_id) DO UPDATE
SET attempt = excluded.attempt, phase = excluded.phase, data = excluded.data, artifacts = excluded.artifacts,
    saved_at = excluded.saved_at
WHERE dag_checkpoints.attempt <= excluded.attempt

-- name: progress
-- Keep how far tasks are.
UPDATE dag_task_queue q SET progress = n.progress::json
FROM unnest(:task_ids::bigint[], :tokens::bigint[], :progress::text[]) AS n (task_id, token, progress)
WHERE q.task_id = n.task_id AND q.lease_token = n.token

-- name: deregister
-- Be known as stopped.
UPDATE dag_workers SET stopped_at = clock() WHERE worker_id = :worker_id
