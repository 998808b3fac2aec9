-- The facts of a diagnosis. Few queries, each about all of the job at once; nothing here writes.

-- name: job
-- A job as the engine knows it, its owner, and how many orchestrators are alive: those that claim, and those that drain.
SELECT j.id, j.status, j.run, j.ending, j.stopping, j.deadline_passed, j.signals,
       j.cancel_requested_at IS NOT NULL AS cancel_requested,
       extract(epoch FROM j.cancel_requested_at)::float8 AS cancelled_at,
       extract(epoch FROM j.deadline_at)::float8 AS deadline_at, extract(epoch FROM clock())::float8 AS now,
       j.owner_id, o.host, o.pid, o.version, o.counters, extract(epoch FROM o.started_at)::float8 AS started_at,
       extract(epoch FROM o.heartbeat_at)::float8 AS heartbeat_at, extract(epoch FROM o.stopped_at)::float8 AS stopped_at,
       extract(epoch FROM o.drain_requested_at)::float8 AS drain_requested_at, a.orchestrators, a.draining_orchestrators
FROM dag_jobs j
LEFT JOIN dag_orchestrators o ON o.owner_id = j.owner_id
CROSS JOIN (SELECT count(*) FILTER (WHERE drain_requested_at IS NULL) AS orchestrators,
                   count(*) FILTER (WHERE drain_requested_at IS NOT NULL) AS draining_orchestrators
            FROM dag_orchestrators
            WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :lease_seconds)) a
WHERE j.id = :job_id

-- name: nodes
-- The rows of all nodes, with the tasks in flight.
SELECT n.node_id, n.status, n.skip_reason, n.attempt, n.failed_attempts, n.lost_attempts, n.shared_losses, n.parent_node_id,
       n.fan_out_index, n.source_count, n.expanded_count, n.stopped, n.upstream_node_id, n.branch,
       extract(epoch FROM n.wake_at)::float8 AS wake_at, n.finished_seq, n.error, n.fingerprint, n.handler_version,
       q.task_id, q.queue, q.handler, q.worker_id, q.progress, extract(epoch FROM q.dispatched_at)::float8 AS dispatched_at,
       extract(epoch FROM q.claimed_at)::float8 AS claimed_at, extract(epoch FROM q.started_at)::float8 AS started_at,
       extract(epoch FROM q.stop_requested_at)::float8 AS stop_requested_at
FROM dag_node_states n
LEFT JOIN LATERAL (SELECT * FROM dag_task_queue q
                   WHERE n.status = 'DISPATCHED' AND q.task_id = n.task_id LIMIT 1) q ON true
WHERE n.job_id = :job_id

-- name: untrusted_offers
-- The handlers among these that live workers offer and none may have, with a caller whose workers offer them.
SELECT n.name, (SELECT min(w.offered ->> 'actor') FROM dag_workers w
                WHERE w.stopped_at IS NULL AND jsonb_exists(w.offered -> 'handlers', n.name)) AS caller
FROM unnest(:names::text[]) AS n (name)
WHERE EXISTS (SELECT FROM dag_workers w
              WHERE w.stopped_at IS NULL AND jsonb_exists(w.offered -> 'handlers', n.name))
  AND NOT EXISTS (SELECT FROM dag_workers w
                  WHERE w.stopped_at IS NULL
                    AND (jsonb_exists(w.handlers, n.name)
                         OR EXISTS (SELECT FROM jsonb_object_keys(w.handlers) AS package (name)
                                  WHERE right(package.name, 2) = '.*' AND starts_with(n.name, left(package.name, -1)))))

-- name: attempts
-- The last attempt of each finished node, and where it ran. By key, whatever the statistics say: a join of 100,000 nodes took over 30 s.
SELECT a.node_id, a.attempt, a.status, extract(epoch FROM a.completed_at)::float8 AS at,
       extract(epoch FROM a.completed_at - a.started_at)::float8 AS seconds, w.host || ':' || w.pid AS worker
FROM dag_node_states n
CROSS JOIN LATERAL (SELECT * FROM dag_task_attempts a
                    WHERE a.job_id = n.job_id AND a.node_id = n.node_id AND a.attempt = n.attempt LIMIT 1) a
LEFT JOIN LATERAL (SELECT w.host, w.pid FROM dag_workers w WHERE w.worker_id = a.worker_id LIMIT 1) w ON true
WHERE n.job_id = :job_id AND n.status IN ('COMPLETED', 'FAILED', 'CANCELLED')

-- name: reports
-- The reports of a job's tasks that its owner has not processed.
SELECT r.node_id, r.attempt, r.status, extract(epoch FROM r.reported_at)::float8 AS at,
       extract(epoch FROM r.reported_at - r.started_at)::float8 AS seconds, w.host || ':' || w.pid AS worker
FROM dag_task_results r
LEFT JOIN dag_workers w ON w.worker_id = r.worker_id
WHERE r.job_id = :job_id

-- name: cancelled_by
-- Who asked last for a job to be cancelled.
SELECT by FROM dag_job_events WHERE job_id = :job_id AND type = 'CancelRequested' ORDER BY seq DESC LIMIT 1

-- name: queue_positions
-- The position of each of a job's tasks in its queue; the first is 1. Those that must run alone have none.
SELECT task_id, position FROM (
    SELECT task_id, job_id, row_number() OVER (PARTITION BY queue ORDER BY priority DESC, task_id) AS position
    FROM dag_task_queue
    WHERE worker_id IS NULL AND stop_requested_at IS NULL AND queue = ANY(:queues::text[])
      AND isolation IS DISTINCT FROM 2
) AS n
WHERE job_id = :job_id
