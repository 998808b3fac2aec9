-- Timelines of jobs. Nothing here writes.

-- name: rows
-- When the attempts of a job were queued, started and finished: the finished ones, those in flight, and nodes that ran
-- without a task (attempt 0). A node that started a child job began with that.
SELECT t.node_id, t.attempt, t.status, w.host || ':' || w.pid AS worker,
       extract(epoch FROM t.queued_at)::float8 AS queued_at, extract(epoch FROM t.started_at)::float8 AS started_at,
       extract(epoch FROM t.finished_at)::float8 AS finished_at
FROM (
    SELECT a.node_id, a.attempt, a.status, a.worker_id, a.dispatched_at AS queued_at, a.completed_at AS finished_at,
           CASE WHEN dag_has_started(a.status, a.claimed_at, a.started_at)
                THEN coalesce(a.started_at, a.claimed_at) END AS started_at
    FROM dag_task_attempts a
    WHERE a.job_id = :job_id AND (a.node_id, a.attempt) > (:after_node::text, :after_attempt::integer)
    UNION ALL
    -- An array of ids, as in `backlog` of read.sql.
    SELECT q.node_id, q.attempt, dag_displayed_node_status('DISPATCHED', q.worker_id, q.started_at), q.worker_id,
           q.dispatched_at, NULL, q.started_at
    FROM dag_task_queue q
    WHERE q.task_id = ANY(array(SELECT n.task_id FROM dag_node_states n
                                WHERE n.job_id = :job_id AND n.status = 'DISPATCHED' AND n.task_id IS NOT NULL))
      AND (q.node_id, q.attempt) > (:after_node::text, :after_attempt::integer)
    UNION ALL
    SELECT n.node_id, 0, n.status, NULL, NULL, n.finished_at, coalesce(n.started_at, c.created_at)
    FROM dag_node_states n
    LEFT JOIN (SELECT j.parent_node_id, max(j.created_at) AS created_at FROM dag_jobs j
               WHERE j.parent_job_id = :job_id GROUP BY 1) c ON c.parent_node_id = n.node_id
    WHERE n.job_id = :job_id AND n.status IN ('RUNNING', 'WAITING', 'COMPLETED', 'FAILED')
      AND (n.node_id, 0) > (:after_node::text, :after_attempt::integer)
      AND NOT EXISTS (SELECT FROM dag_task_attempts a WHERE a.job_id = n.job_id AND a.node_id = n.node_id)
) t
LEFT JOIN dag_workers w ON w.worker_id = t.worker_id
ORDER BY t.node_id, t.attempt
LIMIT :limit

-- name: last_children
-- The child of each fan-out that finished last.
SELECT DISTINCT ON (n.parent_node_id) n.parent_node_id, n.node_id
FROM dag_node_states n
WHERE n.job_id = :job_id AND n.parent_node_id = ANY(:fan_outs::text[]) AND n.finished_at IS NOT NULL
  AND n.skip_reason IS DISTINCT FROM 'superseded'
ORDER BY n.parent_node_id, n.finished_at DESC, n.node_id
