-- What a turn's statement for many jobs, or many rows, has at `{name}` in turn.sql. Compare turn_one.sql.
--
-- No plan depends on statistics: see the head of worker.sql. `(… IN (SELECT id FROM owned)) IS TRUE` is always a hashed
-- subplan; without IS TRUE it would be a join of any kind. Rows with a column to set that others lack are updated by their
-- ctid: only the owner changes them, so that none moves after the look-up.

-- name: is_owned
-- The job of a row to write is owned.
(n.job_id IN (SELECT id FROM owned)) IS TRUE

-- name: is_of_owned
-- A row that was read is of an owned job.
(t.job_id IN (SELECT id FROM owned)) IS TRUE

-- name: is_confirmed
-- No notified result of the job differs from the stored one.
(n.job_id IN (SELECT job_id FROM refuted)) IS NOT TRUE

-- name: join_result
-- The stored result of a notified one.
LEFT JOIN LATERAL (SELECT * FROM dag_task_results r WHERE r.id = n.id LIMIT 1) r ON true

-- name: where_job
-- The job to update.
CROSS JOIN LATERAL (SELECT f.ctid AS row_id FROM dag_jobs f WHERE f.id = n.job_id LIMIT 1) f
WHERE j.ctid = f.row_id

-- name: where_node
-- The node to update.
CROSS JOIN LATERAL (SELECT f.ctid AS row_id FROM dag_node_states f
                    WHERE f.job_id = n.job_id AND f.node_id = n.node_id LIMIT 1) f
WHERE s.ctid = f.row_id

-- name: where_batch
-- The batch to update.
CROSS JOIN LATERAL (SELECT f.ctid AS row_id FROM dag_node_batches f
                    WHERE f.job_id = n.job_id AND f.number = n.number LIMIT 1) f
WHERE b.ctid = f.row_id
