-- The statements of a worker. Each write about a task is fenced by the token of its claim.
--
-- The shape of a plan must not depend on statistics. The queue is analyzed while it is empty, and has 20,000 tasks a
-- moment later: a join by key is then planned as a scan of the whole queue, and a fan-out of 20,000 took 34 s instead of
-- 3 (2026-11). So rows are looked up by key one by one (LATERAL with LIMIT 1, or with FOR UPDATE), and changed by
-- `key = ANY(ARRAY(SELECT …))` or by ctid. The condition of a partial index next to a key would offer a scan of that index:
-- there an unclaimed task is one with `lease_token IS NULL`, not `worker_id IS NULL`. All this holds for claim.sql,
-- also turn.sql and orchestrator.sql; tests/integration/test_plans.py checks it.

-- name: has_table_rights
-- Whether this user may change tables directly. One who may not calls the functions of the role dagmaster_worker.
SELECT has_table_privilege('dag_task_queue', 'DELETE') AS is_direct

-- name: register
-- Register a worker; one that speaks HTTP by the key that registered it. One that registers again, because its lease
-- expired, keeps the request to drain that it may not have seen.
INSERT INTO dag_workers (worker_id, host, pid, version, queues, concurrency, handlers, offered, registered_by,
                         secret_digest, started_at, heartbeat_at, drain_requested_at, drain_deadline_at)
VALUES (:worker_id, :host, :pid, :version, :queues::text[], :concurrency, :handlers::jsonb, :offered::jsonb,
        :registered_by::text, :secret_digest::text, clock(), clock(),
        (SELECT drain_requested_at FROM dag_workers WHERE worker_id = :previous_id),
        (SELECT drain_deadline_at FROM dag_workers WHERE worker_id = :previous_id))

-- name: heartbeat
-- Renew the lease, unless the worker was expired: then no row is returned. Return the claimed tasks to stop: those that
-- were requested to stop, that have finished, or that another worker claimed. An unclaimed one lost its claim in a crash
-- of the database, and is claimed again. Counters that are NULL are left as they are. A request to drain is seen now.
WITH alive AS (
    UPDATE dag_workers
    SET heartbeat_at = clock(), counters = coalesce(:counters::jsonb, counters),
        drain_seen_at = CASE WHEN drain_requested_at IS NOT NULL THEN coalesce(drain_seen_at, clock()) END
    WHERE worker_id = :worker_id AND stopped_at IS NULL
    RETURNING worker_id, handlers, drain_requested_at IS NOT NULL AS is_draining,
              extract(epoch FROM drain_deadline_at - clock())::float8 AS drain_seconds_left
)
SELECT alive.is_draining, alive.drain_seconds_left,
       (SELECT string_agg(claimed.task_id::text, ',')
        FROM unnest(:task_ids::bigint[]) AS claimed (task_id)
        LEFT JOIN LATERAL (SELECT * FROM dag_task_queue q WHERE q.task_id = claimed.task_id LIMIT 1) q ON true
        WHERE q.task_id IS NULL OR q.worker_id <> alive.worker_id OR q.stop_requested_at IS NOT NULL) AS to_stop,
       -- An idle worker takes an exclusive task at once. One that holds tasks must let them finish first: it leaves the
       -- others some time, and the later worker more of it, so that not all of them wait at once.
       NOT alive.is_draining AND EXISTS (SELECT FROM dag_task_queue q
               WHERE q.isolation = 2 AND q.worker_id IS NULL AND q.stop_requested_at IS NULL
                 AND dag_is_served(q.queue, :queues::text[])
                 AND (jsonb_exists(alive.handlers, q.handler)
                      OR EXISTS (SELECT FROM jsonb_object_keys(alive.handlers) AS package (name)
                               WHERE right(package.name, 2) = '.*' AND starts_with(q.handler, left(package.name, -1))))
                 AND (cardinality(:task_ids::bigint[]) = 0
                      OR q.dispatched_at <= clock() - make_interval(secs => :busy_seconds)
                         * (1 + (SELECT count(*) FROM dag_workers w
                                 WHERE w.stopped_at IS NULL AND w.drain_requested_at IS NULL
                                   AND w.worker_id < alive.worker_id)))) AS has_exclusive
FROM alive

-- name: reconcile
-- Release the tasks that this worker has claimed in the database and does not know. A lost connection may have lost the
-- response to a claim, a crashed server a report that was not on disk. A worker that stops releases all its tasks so.
WITH removed AS (
    DELETE FROM dag_task_queue q
    WHERE q.worker_id = :worker_id AND q.claimed_at <= clock() - make_interval(secs => :seconds)
      AND q.task_id <> ALL((SELECT :task_ids::bigint[])::bigint[])
    RETURNING q.*
),
reported AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, worker_id, status, progress, dispatched_at,
                                  claimed_at, started_at, reported_at)
    SELECT job_id, node_id, attempt, task_id, queue, worker_id, 'RELEASED', progress, dispatched_at, claimed_at,
           started_at, clock()
    FROM removed
    RETURNING job_id
)
SELECT count(*) AS released,
       (SELECT count(pg_notify('dagmaster_owner_' || o.owner_id, 'results'))
        FROM (SELECT DISTINCT j.owner_id
              FROM (SELECT DISTINCT job_id FROM reported) r
              CROSS JOIN LATERAL (SELECT j.owner_id FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j
              WHERE j.owner_id IS NOT NULL) o) AS notified
FROM reported

-- name: other_worker_has_handler
-- The handler of a task if another live worker serves its queue and has it, or a package that may have it: `name.*`. One
-- that drains counts: it may be undrained, or be replaced in a moment. So does one that offers it and may not have it yet:
-- the task waits for an administrator.
SELECT q.handler FROM dag_task_queue q
WHERE q.task_id = :task_id AND EXISTS (
    SELECT FROM dag_workers w
    WHERE w.worker_id <> :worker_id AND w.stopped_at IS NULL
      AND (w.queues = '{}' OR q.queue = ANY(w.queues))
      AND (jsonb_exists(w.handlers, q.handler) OR jsonb_exists(w.offered -> 'handlers', q.handler)
           OR (:by_package::boolean AND EXISTS (SELECT FROM jsonb_object_keys(w.handlers) AS package (name)
                    WHERE right(package.name, 2) = '.*' AND starts_with(q.handler, left(package.name, -1)))))
)

-- name: queues_with_tasks
-- The queues that have tasks, each found by one step in an index; without the queues of live `run`s.
WITH RECURSIVE queues AS (
    (SELECT queue FROM dag_task_queue WHERE worker_id IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT q.queue FROM dag_task_queue q WHERE q.worker_id IS NULL AND q.queue > f.queue ORDER BY q.queue LIMIT 1)
    FROM queues f WHERE f.queue IS NOT NULL
)
SELECT queue FROM queues
WHERE queue IS NOT NULL
  AND (queue NOT LIKE 'run:%'
       OR NOT EXISTS (SELECT FROM dag_workers w WHERE queues.queue = ANY(w.queues) AND w.stopped_at IS NULL))

-- name: report
-- Move tasks from the queue to the results, fenced by their tokens. The owner of the job is notified, with the results
-- if they are small (see store/result_notifications.py). In a subquery, clock() is read once and not for each task.
WITH accepted AS (
    SELECT n.*, q.job_id, q.node_id, q.attempt, q.queue, q.progress, q.dispatched_at, q.claimed_at, q.batches,
           coalesce(q.started_at, (SELECT clock()) - make_interval(secs => n.running_seconds)) AS started_at
    FROM rows(report: task_id bigint, token bigint, status text, permanent boolean, output text, output_ref text, error text,
              metrics text, handler_version text, running_seconds float8) AS n
    CROSS JOIN LATERAL (SELECT q.job_id, q.node_id, q.attempt, q.queue, q.progress, q.dispatched_at, q.claimed_at,
                               q.started_at, q.batches
                        FROM dag_task_queue q
                        WHERE q.task_id = n.task_id AND q.lease_token = n.token AND q.worker_id = :worker_id
                        FOR UPDATE) q
),
removed AS (
    DELETE FROM dag_task_queue WHERE task_id = ANY(ARRAY(SELECT task_id FROM accepted))
),
{@results_of_accepted}

-- name: report_one
-- The same for one task: its key is a constant, so that its row need not be locked before it is deleted. That takes 156
-- instead of 182 µs of the server's CPU (2026-11, PostgreSQL 18).
WITH accepted AS (
    DELETE FROM dag_task_queue q
    USING row(report: task_id bigint, token bigint, status text, permanent boolean, output text, output_ref text, error text,
              metrics text, handler_version text, running_seconds float8) AS n
    WHERE q.task_id = n.task_id AND q.lease_token = n.token AND q.worker_id = :worker_id
    RETURNING n.*, q.job_id, q.node_id, q.attempt, q.queue, q.progress, q.dispatched_at, q.claimed_at, q.batches,
              coalesce(q.started_at, clock() - make_interval(secs => n.running_seconds)) AS started_at
),
{@results_of_accepted}

-- name: release
-- Release tasks that were not started: they keep their position in the queue. One that is to stop is reported instead.
WITH released AS (
    UPDATE dag_task_queue SET worker_id = NULL, lease_token = NULL, claimed_at = NULL, started_at = NULL
    WHERE task_id = ANY(ARRAY(
        SELECT q.task_id
        FROM unnest(:task_ids::bigint[], :tokens::bigint[]) AS n (task_id, token)
        CROSS JOIN LATERAL (SELECT q.task_id FROM dag_task_queue q
                            WHERE q.task_id = n.task_id AND q.lease_token = n.token AND q.worker_id = :worker_id
                              AND q.stop_requested_at IS NULL
                            FOR UPDATE) q))
    RETURNING task_id, queue
)
SELECT string_agg(task_id::text, ',') AS task_ids,
       (SELECT count(pg_notify('dagmaster_tasks', queues.queue)) FROM (SELECT DISTINCT queue FROM released) queues) AS notified
FROM released

-- name: append_logs
-- Append log chunks of claimed tasks.
INSERT INTO dag_task_logs (task_id, chunk, job_id, node_id, attempt, at, text)
SELECT q.task_id, n.chunk, q.job_id, q.node_id, q.attempt, clock(), n.text
FROM unnest(:task_ids::bigint[], :tokens::bigint[], :chunks::integer[], :texts::text[])
     AS n (task_id, token, chunk, text)
CROSS JOIN LATERAL (SELECT * FROM dag_task_queue q
                    WHERE q.task_id = n.task_id AND q.lease_token = n.token AND q.worker_id = :worker_id LIMIT 1) q
ON CONFLICT DO NOTHING

-- name: checkpoint
-- Store the newest checkpoint of each claimed task.
INSERT INTO dag_checkpoints (job_id, node_id, attempt, phase, data, artifacts, saved_at)
SELECT q.job_id, q.node_id, q.attempt, n.phase, n.data::json, array(SELECT json_array_elements_text(n.artifacts::json)),
       clock()
FROM unnest(:task_ids::bigint[], :tokens::bigint[], :phases::text[], :data::text[], :artifacts::text[])
     AS n (task_id, token, phase, data, artifacts)
CROSS JOIN LATERAL (SELECT * FROM dag_task_queue q
                    WHERE q.task_id = n.task_id AND q.lease_token = n.token AND q.worker_id = :worker_id LIMIT 1) q
ON CONFLICT (job_id, node_id) DO UPDATE
SET attempt = excluded.attempt, phase = excluded.phase, data = excluded.data, artifacts = excluded.artifacts,
    saved_at = excluded.saved_at
WHERE dag_checkpoints.attempt <= excluded.attempt

-- name: progress
-- Store the progress of tasks. One whose row changes meanwhile keeps its last progress.
UPDATE dag_task_queue q SET progress = n.progress::json
FROM unnest(:task_ids::bigint[], :tokens::bigint[], :progress::text[]) AS n (task_id, token, progress)
CROSS JOIN LATERAL (SELECT f.ctid AS row_id, f.lease_token FROM dag_task_queue f WHERE f.task_id = n.task_id LIMIT 1) f
WHERE f.lease_token = n.token AND q.ctid = f.row_id AND q.lease_token = n.token AND q.worker_id = :worker_id

-- name: mark_started
-- Mark tasks whose handlers have started. One whose row changes meanwhile is marked when it is reported.
UPDATE dag_task_queue q SET started_at = clock() - make_interval(secs => n.running_seconds)
FROM unnest(:task_ids::bigint[], :tokens::bigint[], :running_seconds::float8[]) AS n (task_id, token, running_seconds)
CROSS JOIN LATERAL (SELECT f.ctid AS row_id, f.lease_token FROM dag_task_queue f WHERE f.task_id = n.task_id LIMIT 1) f
WHERE f.lease_token = n.token AND q.ctid = f.row_id AND q.lease_token = n.token AND q.worker_id = :worker_id

-- name: deregister
-- Deregister a worker.
UPDATE dag_workers SET stopped_at = clock() WHERE worker_id = :worker_id
