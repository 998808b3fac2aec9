-- What a worker with the role dagmaster_worker must prove before a statement runs (ADR 0042). Each is a condition: no row,
-- and the function returns nothing, as for a task that is not held any more.

-- name: proves_worker
-- The caller has the secret that this worker was registered with.
SELECT FROM dag_workers w
WHERE w.worker_id = :worker_id AND w.secret_digest = encode(sha256(convert_to(:worker_secret::text, 'UTF8')), 'hex')

-- name: holds_task
-- The worker holds this task.
SELECT FROM dag_task_queue q WHERE q.task_id = :task_id AND q.lease_token = :token AND q.worker_id = :worker_id

-- name: adds_for_own_node
-- The worker holds this task, and reserves no call of another node.
SELECT FROM dag_task_queue q
WHERE q.task_id = :task_id AND q.lease_token = :token AND q.worker_id = :worker_id
  AND (:node_id::text IS NULL OR q.node_id = :node_id::text)

-- name: holds_task_of_job
-- The worker holds this task, and it is of this job.
SELECT FROM dag_task_queue q
WHERE q.task_id = :task_id AND q.lease_token = :token AND q.worker_id = :worker_id AND q.job_id = :job_id

-- name: adds_own_batch
-- The worker holds this task, and its node reserved this batch, which is not accepted yet. Number 0 stages no batch.
SELECT FROM dag_task_queue q
WHERE q.task_id = :task_id AND q.lease_token = :token AND q.worker_id = :worker_id
  AND (:number::integer = 0
       OR EXISTS (SELECT FROM dag_node_batches b
                  WHERE b.job_id = q.job_id AND b.number = :number::integer AND b.added_by = q.node_id
                    AND b.accepted_order IS NULL))

-- name: reads_own_batches
-- All of these batches were reserved by the node of the task.
SELECT FROM dag_task_queue q
WHERE q.task_id = :task_id AND q.lease_token = :token AND q.worker_id = :worker_id AND q.job_id = :job_id
  AND :numbers::integer[] <@ ARRAY(SELECT b.number FROM dag_node_batches b
                                   WHERE b.job_id = q.job_id AND b.added_by = q.node_id)

-- name: has_own_connection
-- A worker registers itself, and not one that speaks HTTP, which belongs to a key.
SELECT WHERE :registered_by::text IS NULL AND :secret_digest::text IS NOT NULL

-- name: leases_briefly
-- A machine id is leased for a minute at most.
SELECT WHERE :seconds::float8 <= 60
