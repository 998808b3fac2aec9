-- What an explanation of a job asks. Few questions, each about all of the job at once; nothing here writes.

-- name: job
-- A job as the engine knows it, who owns it, and how many orchestrators live.
SELECT j.id, j.workflow_id, j.version, j.content_hash, j.status, j.run, j.inputs, j.error, j.ending, j.stopping,
       j.deadline_passed, j.signals, j.queue, j.cancel_requested_at IS NOT NULL AS cancel_requested,
       extract(epoch FROM j.cancel_requested_at)::float8 AS cancelled_at,
       extract(epoch FROM j.deadline_at)::float8 AS deadline_at, extract(epoch FROM j.created_at)::float8 AS created_at,
       extract(epoch FROM j.started_at)::float8 AS started_at, extract(epoch FROM j.finished_at)::float8 AS finished_at,
       extract(epoch FROM clock())::float8 AS now, j.owner_id, o.host, o.pid, 
       o.stopped_at IS NOT NULL OR o.counters -> 'heard_at' IS NOT NULL AS owner_is_over,
       extract(epoch FROM clock() - coalesce(to_timestamp((o.counters ->> 'heard_at')::float8), o.heartbeat_at))::float8
           AS silent_seconds,
       o.counters -> 'quarantined' ->> j.id::text AS trouble,
       CASE WHEN j.run > 1 THEN (SELECT extract(epoch FROM e.at)::float8 FROM dag_job_events e
                                  WHERE e.job_id = j.id AND e.type = 'JobResumed' ORDER BY e.seq DESC LIMIT 1) END
           AS resumed_at,
       (SELECT count(*) FROM dag_orchestrators a
        WHERE a.stopped_at IS NULL AND a.heartbeat_at > clock() - make_interval(secs => :lease_seconds)) AS orchestrators
FROM dag_jobs j
LEFT JOIN dag_orchestrators o ON o.owner_id = j.owner_id
WHERE j.id = :job_id

-- name: nodes
-- The rows of all nodes, and of the tasks that are out.
SELECT n.node_id, n.status, n.skip_reason, n.attempt, n.failed_attempts, n.lost_attempts, n.parent_node_id, n.fan_out_index,
       n.source_count, n.expanded_count, n.stopped, n.upstream_node_id, n.branch,
       extract(epoch FROM n.wake_at)::float8 AS wake_at, n.finished_seq, n.error, n.fingerprint, n.handler_version,
       q.task_id, q.queue, q.worker_id, q.progress, extract(epoch FROM q.dispatched_at)::float8 AS dispatched_at,
       extract(epoch FROM q.claimed_at)::float8 AS claimed_at,
       extract(epoch FROM q.stop_requested_at)::float8 AS stop_requested_at
FROM dag_node_states n
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id AND n.status = 'DISPATCHED'
WHERE n.job_id = :job_id

-- name: attempts
-- The last attempt of each node that is over, and where it ran.
SELECT a.node_id, a.attempt, a.status, extract(epoch FROM a.completed_at)::float8 AS at,
       extract(epoch FROM a.completed_at - a.claimed_at)::float8 AS seconds, w.host || ':' || w.pid AS "where"
FROM dag_node_states n
JOIN dag_task_attempts a ON a.job_id = n.job_id AND a.node_id = n.node_id AND a.attempt = n.attempt
LEFT JOIN dag_workers w ON w.worker_id = a.worker_id
WHERE n.job_id = :job_id AND n.status IN ('COMPLETED', 'FAILED', 'CANCELLED')

-- name: reports
-- What was reported of a job, and not taken up yet.
SELECT r.node_id, r.attempt, r.status, extract(epoch FROM r.reported_at)::float8 AS at,
       extract(epoch FROM r.reported_at - r.claimed_at)::float8 AS seconds, w.host || ':' || w.pid AS "where"
FROM dag_task_results r
LEFT JOIN dag_workers w ON w.worker_id = r.worker_id
WHERE r.job_id = :job_id

-- name: outputs
-- What some nodes gave, if it stands in their rows.
SELECT node_id, output FROM dag_node_states
WHERE job_id = :job_id AND node_id = ANY(:node_ids::text[]) AND status = 'COMPLETED' AND output IS NOT NULL

-- name: cancel
-- Who asked for a job to stop, last.
SELECT by FROM dag_job_events WHERE job_id = :job_id AND type = 'CancelRequested' ORDER BY seq DESC LIMIT 1

-- name: places
-- The position of each of a job's tasks in its queue; the first is 1.
SELECT task_id, queue_position FROM (
    SELECT task_id, job_id, row_number() OVER (PARTITION BY queue ORDER BY priority DESC, task_id) AS queue_position
    FROM dag_task_queue
    WHERE worker_id IS NULL AND stop_requested_at IS NULL AND queue = ANY(:queues::text[])
) AS n
WHERE job_id = :job_id

-- name: workers
-- The workers that live, and those that hold tasks of a job.
SELECT w.worker_id, w.host, w.pid, w.queues, w.concurrency, 
       w.stopped_at IS NOT NULL OR w.counters -> 'heard_at' IS NOT NULL AS is_over,
       extract(epoch FROM w.heartbeat_at)::float8 AS heartbeat_at,
       extract(epoch FROM clock() - coalesce(to_timestamp((w.counters ->> 'heard_at')::float8), w.heartbeat_at))::float8
           AS silent_seconds,
       (w.counters ->> 'running')::integer AS running, w.counters ->> 'begun' AS begun,
       (w.counters ->> 'processes')::integer AS processes, (w.counters ->> 'processes_busy')::integer AS processes_busy
FROM dag_workers w
WHERE (w.stopped_at IS NULL AND w.heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds))
   OR w.worker_id = ANY(:worker_ids::bigint[])
