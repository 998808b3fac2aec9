-- The invariants of reports, checked in batches of their ids. As in audit.sql, the comment of a query is its rule.

-- name: batch
-- The last id of a batch of reports after an id.
SELECT max(id) AS last FROM (SELECT id FROM dag_task_results WHERE id > :after ORDER BY id LIMIT :size::bigint) AS r

-- name: finished_jobs_are_consistent
-- A finished job has no open node, no queued task and no pending report, and its status is that of its last JobFinished.
SELECT r.job_id, r.node_id, format('task %s is reported, and the job is %s', r.task_id, j.status) AS message
FROM dag_task_results r
CROSS JOIN LATERAL (SELECT j.status FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j
WHERE r.id > :after AND r.id <= :last AND r.job_id BETWEEN :low AND :high
  AND j.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
LIMIT :limit

-- name: no_orphaned_rows
-- Every row of a job has its job, and every child of a fan-out has its fan-out.
SELECT r.job_id, r.node_id, 'a report exists, and the job does not' AS message
FROM dag_task_results r
LEFT JOIN LATERAL (SELECT j.id FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j ON true
WHERE r.id > :after AND r.id <= :last AND r.job_id BETWEEN :low AND :high AND j.id IS NULL
LIMIT :limit

-- name: results_are_processed
-- A report is processed while the owner of its job is alive: none waits longer than a minute, or four leases.
SELECT r.job_id, r.node_id,
       format('attempt %s was reported as %s at %s, and orchestrator %s did not process it', r.attempt, r.status,
              r.reported_at, j.owner_id) AS message
FROM dag_task_results r
CROSS JOIN LATERAL (SELECT j.owner_id FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j
JOIN dag_orchestrators o ON o.owner_id = j.owner_id
WHERE r.id > :after AND r.id <= :last AND r.job_id BETWEEN :low AND :high
  AND r.reported_at <= clock() - make_interval(secs => :stall_seconds)
  AND o.stopped_at IS NULL AND o.started_at <= clock() - make_interval(secs => :stall_seconds)
  AND o.heartbeat_at > clock() - make_interval(secs => :lease_seconds)
LIMIT :limit
