-- The parts of queries about nodes, and tasks across jobs. As with jobs, a query has only the conditions that are set.

-- name: columns
-- A node as a record, with its task while that is in flight.
SELECT n.job_id, n.node_id, dag_displayed_node_status(n.status, q.worker_id, q.started_at) AS status,
       n.skip_reason, n.attempt, n.failed_attempts, n.lost_attempts, coalesce(n.shared_losses, 0) AS shared_losses, n.stopped, n.branch, n.parent_node_id,
       CASE WHEN n.parent_node_id IS NOT NULL THEN n.fan_out_index END AS fan_out_index,
       n.source_count, n.expanded_count, n.error, n.output_ref, n.handler_version,
       extract(epoch FROM n.wake_at)::float8 AS wake_at,
       extract(epoch FROM coalesce(n.started_at, q.started_at))::float8 AS started_at,
       extract(epoch FROM n.finished_at)::float8 AS finished_at, extract(epoch FROM n.updated_at)::float8 AS updated_at,
       q.task_id, q.queue, q.worker_id, q.progress, extract(epoch FROM q.dispatched_at)::float8 AS dispatched_at,
       j.workflow_id

-- name: task
-- The task of a node while it is in flight.
LEFT JOIN LATERAL (SELECT * FROM dag_task_queue q
                   WHERE n.status = 'DISPATCHED' AND q.task_id = n.task_id LIMIT 1) q ON true

-- name: of_job
-- The nodes of one job.
FROM dag_node_states n JOIN dag_jobs j ON j.id = n.job_id

-- name: of_keys
-- Some nodes of some jobs.
FROM unnest(:job_ids::bigint[], :node_ids::text[]) AS k (job_id, node_id)
CROSS JOIN LATERAL (SELECT * FROM dag_node_states n WHERE n.job_id = k.job_id AND n.node_id = k.node_id LIMIT 1) n
CROSS JOIN LATERAL (SELECT j.workflow_id FROM dag_jobs j WHERE j.id = n.job_id LIMIT 1) j

-- name: across_jobs
-- The nodes of all jobs, newest job first: jobs are read in this order, and no more of them than fill the page.
FROM (SELECT j.id, j.workflow_id FROM dag_jobs j WHERE {jobs} ORDER BY j.id DESC OFFSET 0) AS j
JOIN dag_node_states n ON n.job_id = j.id

-- name: across_open_jobs
-- The nodes of open jobs, newest job first. A node that is active or waits is in one of these.
FROM (SELECT o.id, o.workflow_id
      FROM (SELECT j.id, j.workflow_id FROM dag_jobs j WHERE {jobs} AND j.status IN ('PENDING', 'RUNNING') OFFSET 0) AS o
      ORDER BY o.id DESC OFFSET 0) AS j
JOIN dag_node_states n ON n.job_id = j.id

-- name: workflow_id
-- Jobs of a workflow.
j.workflow_id = :workflow_id::text

-- name: visible
-- Jobs that lists show.
NOT j.is_hidden

-- name: after_job
-- Jobs from the last one of the page before on.
j.id <= :after_job_id::bigint

-- name: job_id
-- Nodes of one job.
n.job_id = :job_id::bigint

-- name: ids
-- Nodes with these ids.
n.node_id = ANY(:node_ids::text[])

-- name: not_superseded
-- No children that are left over from an earlier run.
(n.parent_node_id IS NULL OR n.skip_reason IS DISTINCT FROM 'superseded')

-- name: children
-- Children of a fan-out. Their ids are a range.
n.parent_node_id = :parent_node_id::text AND n.node_id >= :parent_node_id::text || '__'
AND n.node_id < :parent_node_id::text || '_`'

-- name: top_level
-- No children of fan-outs.
n.parent_node_id IS NULL

-- name: after_node
-- Nodes of one job after a page.
(coalesce(n.parent_node_id, ''), n.fan_out_index, n.node_id) > (:after_parent::text, :after_index::integer, :after_id::text)

-- name: after_node_of_job
-- Nodes of all jobs after a page.
(n.job_id < :after_job_id::bigint OR n.node_id > :after_id::text)
