-- The invariants of queued tasks, checked in batches of their ids. As in audit.sql, the comment of a query is its rule.

-- name: batch
-- The last id of a batch of tasks after an id.
SELECT max(task_id) AS last
FROM (SELECT task_id FROM dag_task_queue WHERE task_id > :after ORDER BY task_id LIMIT :size::bigint) AS q

-- name: queued_tasks_match_nodes
-- A queued task is the current attempt of a dispatched node, has the node's task id, and its worker is registered.
SELECT q.job_id, q.node_id,
       format('task %s, attempt %s, is in queue %s, and the node is %s in attempt %s with task %s', q.task_id,
              q.attempt, q.queue, coalesce(n.status, 'missing'), coalesce(n.attempt, 0), n.task_id) AS message
FROM dag_task_queue q
LEFT JOIN LATERAL (SELECT n.status, n.attempt, n.task_id FROM dag_node_states n
                   WHERE n.job_id = q.job_id AND n.node_id = q.node_id LIMIT 1) n ON true
LEFT JOIN dag_workers w ON w.worker_id = q.worker_id
WHERE q.task_id > :after AND q.task_id <= :last AND q.job_id BETWEEN :low AND :high
  AND (n.status IS DISTINCT FROM 'DISPATCHED' OR n.attempt <> q.attempt OR n.task_id IS DISTINCT FROM q.task_id
       OR (q.worker_id IS NOT NULL AND w.worker_id IS NULL))
LIMIT :limit

-- name: claims_can_expire
-- The owner of a job and the worker of a task are alive or will be expired: none is unregistered or stopped long ago.
SELECT q.job_id, q.node_id, format('is claimed by worker %s, which stopped at %s', q.worker_id, w.stopped_at) AS message
FROM dag_task_queue q
JOIN dag_workers w ON w.worker_id = q.worker_id
WHERE q.task_id > :after AND q.task_id <= :last AND q.job_id BETWEEN :low AND :high
  AND w.stopped_at <= clock() - make_interval(secs => 5 * :worker_lease_seconds)
LIMIT :limit

-- name: finished_jobs_are_consistent
-- A finished job has no open node, no queued task and no pending report, and its status is that of its last JobFinished.
SELECT q.job_id, q.node_id, format('task %s is in a queue, and the job is %s', q.task_id, j.status) AS message
FROM dag_task_queue q
CROSS JOIN LATERAL (SELECT j.status FROM dag_jobs j WHERE j.id = q.job_id LIMIT 1) j
WHERE q.task_id > :after AND q.task_id <= :last AND q.job_id BETWEEN :low AND :high
  AND j.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
LIMIT :limit

-- name: no_orphaned_rows
-- Every row of a job has its job, and every child of a fan-out has its fan-out.
SELECT q.job_id, q.node_id, 'a task exists, and the job does not' AS message
FROM dag_task_queue q
LEFT JOIN LATERAL (SELECT j.id FROM dag_jobs j WHERE j.id = q.job_id LIMIT 1) j ON true
WHERE q.task_id > :after AND q.task_id <= :last AND q.job_id BETWEEN :low AND :high AND j.id IS NULL
LIMIT :limit
