-- What is asked about one node. Nothing here writes.

-- name: node
-- One node: what it gave, its place in a fan-out, and the params of its task while that is out.
SELECT n.parent_node_id, n.fan_out_index, n.output, n.output_ref, n.handler_version, q.params, q.secrets,
       q.attempt AS out_attempt, q.worker_id AS out_worker_id, w.host || ':' || w.pid AS out_where, q.queue AS out_queue,
       extract(epoch FROM q.dispatched_at)::float8 AS out_dispatched_at,
       extract(epoch FROM q.claimed_at)::float8 AS out_claimed_at
FROM dag_node_states n
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id AND n.status = 'DISPATCHED'
LEFT JOIN dag_workers w ON w.worker_id = q.worker_id
WHERE n.job_id = :job_id AND n.node_id = :node_id

-- name: item
-- One item of the list of a fan-out.
SELECT source -> :number::integer AS item FROM dag_node_states WHERE job_id = :job_id AND node_id = :fan

-- name: attempts
-- The attempts at a node that are over, and where they ran.
SELECT a.attempt, a.status, a.queue, a.worker_id, w.host || ':' || w.pid AS "where", a.error, a.metrics,
       extract(epoch FROM a.dispatched_at)::float8 AS dispatched_at,
       extract(epoch FROM a.claimed_at)::float8 AS claimed_at,
       extract(epoch FROM a.completed_at)::float8 AS completed_at
FROM dag_task_attempts a
LEFT JOIN dag_workers w ON w.worker_id = a.worker_id
WHERE a.job_id = :job_id AND a.node_id = :node_id
ORDER BY a.attempt
