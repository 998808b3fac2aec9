-- What the statement for a turn of one job has at `{name}` in turn.sql. Compare turn_many.sql.
--
-- The ids of rows of the turn belong to its job; ids that were read are compared. Each part has one row, which is found
-- by keys that are constants: no plan of that depends on statistics. A turn of a chain takes 350 µs of the server's CPU,
-- with look-ups and hashed subplans 540 (2026-11, PostgreSQL 18).

-- name: is_owned
-- The job of a row to write is owned.
EXISTS (SELECT FROM owned)

-- name: is_of_owned
-- A row that was read is of the owned job.
t.job_id = (SELECT id FROM owned)

-- name: is_confirmed
-- No notified result of the job differs from the stored one.
NOT EXISTS (SELECT FROM refuted)

-- name: join_result
-- The stored result of a notified one.
LEFT JOIN dag_task_results r ON r.id = n.id

-- name: where_job
-- The job to update.
WHERE j.id = n.job_id

-- name: where_node
-- The node to update.
WHERE s.job_id = n.job_id AND s.node_id = n.node_id

-- name: where_batch
-- The batch to update.
WHERE b.job_id = n.job_id AND b.number = n.number
