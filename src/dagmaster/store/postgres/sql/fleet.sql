-- Orchestrators, workers and queues: live services, services that stopped within the last hour, what they own,
-- claim and left.

-- name: orchestrators
-- Live orchestrators, and the last ones that stopped or died.
SELECT o.owner_id AS id, o.host, o.pid, o.version, o.counters, extract(epoch FROM o.started_at)::float8 AS started_at,
       extract(epoch FROM o.heartbeat_at)::float8 AS heartbeat_at, extract(epoch FROM o.stopped_at)::float8 AS stopped_at,
       extract(epoch FROM clock())::float8 AS now,
       extract(epoch FROM o.drain_requested_at)::float8 AS drain_requested_at,
       extract(epoch FROM o.drain_seen_at)::float8 AS drain_seen_at,
       (SELECT count(*) FROM dag_jobs j WHERE j.owner_id = o.owner_id AND j.status IN ('PENDING', 'RUNNING')) AS jobs
FROM dag_orchestrators o
WHERE o.heartbeat_at > clock() - make_interval(secs => :recent_seconds)
  AND (o.stopped_at IS NULL
       OR o.owner_id IN (SELECT g.owner_id FROM dag_orchestrators g
                         WHERE g.stopped_at IS NOT NULL
                           AND g.heartbeat_at > clock() - make_interval(secs => :recent_seconds)
                         ORDER BY g.stopped_at DESC LIMIT :max_stopped))

-- name: left_jobs
-- Where the open jobs are that orchestrators left: owned again, or not.
SELECT j.previous_owner_id AS owner_id, count(*) FILTER (WHERE j.owner_id IS NOT NULL) AS owned,
       count(*) FILTER (WHERE j.owner_id IS NULL) AS unowned
FROM dag_jobs j
WHERE j.status IN ('PENDING', 'RUNNING') AND j.previous_owner_id = ANY(:owner_ids::bigint[])
GROUP BY j.previous_owner_id

-- name: workers
-- Live workers, and the last ones that stopped or died.
SELECT w.worker_id AS id, w.tenant, w.host, w.pid, w.version, w.queues, w.concurrency, w.counters,
       extract(epoch FROM w.started_at)::float8 AS started_at,
       extract(epoch FROM w.heartbeat_at)::float8 AS heartbeat_at, extract(epoch FROM w.stopped_at)::float8 AS stopped_at,
       extract(epoch FROM clock())::float8 AS now,
       extract(epoch FROM w.drain_requested_at)::float8 AS drain_requested_at,
       extract(epoch FROM w.drain_seen_at)::float8 AS drain_seen_at
FROM dag_workers w
WHERE w.heartbeat_at > clock() - make_interval(secs => :recent_seconds)
  AND (w.stopped_at IS NULL
       OR w.worker_id IN (SELECT g.worker_id FROM dag_workers g
                          WHERE g.stopped_at IS NOT NULL
                            AND g.heartbeat_at > clock() - make_interval(secs => :recent_seconds)
                          ORDER BY g.stopped_at DESC LIMIT :max_stopped))

-- name: workers_of_tasks
-- Registered workers, and these. One that died is registered until an orchestrator expires it.
SELECT w.worker_id AS id, w.host, w.pid, w.version, w.queues, w.concurrency, w.counters,
       extract(epoch FROM w.started_at)::float8 AS started_at,
       extract(epoch FROM w.heartbeat_at)::float8 AS heartbeat_at, extract(epoch FROM w.stopped_at)::float8 AS stopped_at,
       extract(epoch FROM clock())::float8 AS now,
       extract(epoch FROM w.drain_requested_at)::float8 AS drain_requested_at,
       extract(epoch FROM w.drain_seen_at)::float8 AS drain_seen_at
FROM dag_workers w
WHERE w.stopped_at IS NULL OR w.worker_id = ANY(:worker_ids::bigint[])

-- name: left_nodes
-- The statuses of the nodes whose tasks dead workers left, and which of them crashed since.
SELECT l.worker_id, dag_displayed_node_status(n.status, q.worker_id, q.started_at) AS status, count(*) AS nodes,
       json_agg(json_build_array(l.job_id::text, l.node_id) ORDER BY l.job_id, l.node_id)
           FILTER (WHERE n.error ->> 'kind' = ANY(:crash_kinds::text[])) AS crashed
FROM unnest(:worker_ids::bigint[], :job_ids::bigint[], :node_ids::text[]) AS l (worker_id, job_id, node_id)
CROSS JOIN LATERAL (SELECT * FROM dag_node_states n WHERE n.job_id = l.job_id AND n.node_id = l.node_id LIMIT 1) n
LEFT JOIN LATERAL (SELECT * FROM dag_task_queue q WHERE q.task_id = n.task_id LIMIT 1) q ON true
GROUP BY 1, 2

-- name: claimed
-- How many tasks each worker has claimed, and how many of them are past their timeouts.
SELECT worker_id, count(*) AS tasks,
       count(*) FILTER (WHERE extract(epoch FROM clock() - started_at) > timeout_seconds + :overdue_seconds) AS overdue
FROM dag_task_queue WHERE worker_id IS NOT NULL GROUP BY worker_id

-- name: queues
-- How many tasks of each queue wait, and how many are claimed.
SELECT queue, count(*) FILTER (WHERE worker_id IS NULL) AS waiting,
       count(*) FILTER (WHERE worker_id IS NULL AND isolation = 2) AS waiting_exclusive,
       count(*) FILTER (WHERE worker_id IS NOT NULL) AS claimed,
       extract(epoch FROM clock() - min(dispatched_at) FILTER (WHERE worker_id IS NULL))::float8 AS oldest_seconds
FROM dag_task_queue GROUP BY queue ORDER BY queue

-- name: has_tenants
-- Whether there are other tenants than the installation.
SELECT dag_has_tenants() AS has_tenants

-- name: unowned_jobs
-- How many open jobs no orchestrator owns.
SELECT count(*) AS jobs FROM dag_jobs WHERE owner_id IS NULL AND status IN ('PENDING', 'RUNNING')

-- name: handlers
-- Published handlers by name, each in one version: that of live workers, else the last published one. `versions`: all of
-- them in this order. Of a name that the installation has taken over, only its own.
WITH live AS (
    SELECT h.key AS name, h.value AS version, count(*) AS workers
    FROM dag_workers w CROSS JOIN LATERAL jsonb_each_text(w.handlers) h
    WHERE w.stopped_at IS NULL AND w.heartbeat_at > clock() - make_interval(secs => :lease_seconds)
    GROUP BY h.key, h.value
),
names AS (
    SELECT DISTINCT h.name FROM dag_handlers h WHERE h.name > :after::text ORDER BY h.name LIMIT :limit::bigint
)
SELECT n.name, v.version, v.definition, v.published_at, v.workers, v.owner, v.is_trusted,
       (SELECT json_agg(o.version ORDER BY o.version <> v.version, o.published_at DESC, o.version DESC)
        FROM dag_handlers o WHERE o.name = n.name AND o.owner = v.owner) AS versions
FROM names n
CROSS JOIN LATERAL (
    SELECT h.version, h.definition, extract(epoch FROM h.published_at)::float8 AS published_at, h.owner,
           h.owner = 'installation' OR h.trusted_at IS NOT NULL AS is_trusted, coalesce(l.workers, 0) AS workers
    FROM dag_handlers h LEFT JOIN live l ON l.name = h.name AND l.version = h.version
    WHERE h.name = n.name
    ORDER BY h.owner <> 'installation', l.workers IS NULL, h.published_at DESC, h.version DESC
    LIMIT 1
) v
ORDER BY n.name
