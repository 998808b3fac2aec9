-- Who is alive, who went, what they hold and what they left.

-- name: orchestrators
-- The orchestrators that live, all of them, and the last that went; how many jobs each owns, and where those are that it left.
SELECT o.owner_id, o.host, o.pid, o.version, o.counters, extract(epoch FROM clock() - o.heartbeat_at)::float8 AS silent_seconds,
       extract(epoch FROM clock() - to_timestamp((o.counters ->> 'heard_at')::float8))::float8 AS heard_seconds,
       extract(epoch FROM clock() - o.started_at)::float8 AS age_seconds,
       extract(epoch FROM clock() - o.stopped_at)::float8 AS stopped_seconds,
       (SELECT count(*) FROM dag_jobs j WHERE j.owner_id = o.owner_id AND j.status IN ('PENDING', 'RUNNING')) AS jobs
FROM dag_orchestrators o
WHERE o.heartbeat_at > clock() - make_interval(secs => :recent_seconds)
  AND (o.stopped_at IS NULL
       OR o.owner_id IN (SELECT g.owner_id FROM dag_orchestrators g
                     WHERE g.stopped_at IS NOT NULL AND g.heartbeat_at > clock() - make_interval(secs => :recent_seconds)
                     ORDER BY g.stopped_at DESC LIMIT :most))
ORDER BY o.stopped_at NULLS FIRST, o.owner_id DESC

-- name: left_jobs
-- Where the open jobs are that orchestrators left: owned again, or not.
SELECT j.previous_owner_id AS owner_id, count(*) FILTER (WHERE j.owner_id IS NOT NULL) AS owned,
       count(*) FILTER (WHERE j.owner_id IS NULL) AS unowned
FROM dag_jobs j
WHERE j.status IN ('PENDING', 'RUNNING') AND j.previous_owner_id = ANY(:owner_ids::bigint[])
GROUP BY j.previous_owner_id

-- name: workers
-- The workers that live, all of them: they say which queues are served. And the last that went.
SELECT w.worker_id, w.host, w.pid, w.version, w.queues, w.concurrency, w.counters,
       extract(epoch FROM clock() - w.heartbeat_at)::float8 AS silent_seconds,
       extract(epoch FROM clock() - to_timestamp((w.counters ->> 'heard_at')::float8))::float8 AS heard_seconds,
       extract(epoch FROM clock() - w.started_at)::float8 AS age_seconds,
       extract(epoch FROM clock() - w.stopped_at)::float8 AS stopped_seconds
FROM dag_workers w
WHERE w.heartbeat_at > clock() - make_interval(secs => :recent_seconds)
  AND (w.stopped_at IS NULL
       OR w.worker_id IN (SELECT g.worker_id FROM dag_workers g
                     WHERE g.stopped_at IS NOT NULL AND g.heartbeat_at > clock() - make_interval(secs => :recent_seconds)
                     ORDER BY g.stopped_at DESC LIMIT :most))
ORDER BY w.stopped_at NULLS FIRST, w.worker_id DESC

-- name: left_nodes
-- Where the nodes stand whose tasks dead workers left.
SELECT l.worker_id, CASE WHEN n.status = 'DISPATCHED' AND q.worker_id IS NOT NULL THEN 'RUNNING' ELSE n.status END AS status,
       count(*) AS count
FROM unnest(:worker_ids::bigint[], :job_ids::bigint[], :node_ids::text[]) AS l (worker_id, job_id, node_id)
JOIN dag_node_states n ON n.job_id = l.job_id AND n.node_id = l.node_id
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id
GROUP BY 1, 2

-- name: held
-- How many tasks each worker holds.
SELECT worker_id, count(*) AS count FROM dag_task_queue WHERE worker_id IS NOT NULL GROUP BY worker_id

-- name: queues
-- What waits in each queue, and what workers hold of it.
SELECT queue, count(*) FILTER (WHERE worker_id IS NULL) AS waiting,
       count(*) FILTER (WHERE worker_id IS NOT NULL) AS held,
       extract(epoch FROM clock() - min(dispatched_at) FILTER (WHERE worker_id IS NULL))::float8 AS oldest_seconds
FROM dag_task_queue GROUP BY queue ORDER BY queue

-- name: unowned
-- How many open jobs nobody owns.
SELECT count(*) AS count FROM dag_jobs WHERE owner_id IS NULL AND status IN ('PENDING', 'RUNNING')
