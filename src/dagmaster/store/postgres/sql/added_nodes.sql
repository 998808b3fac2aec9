-- Batches of nodes that are added to the graph of one job. Their rows are written by COPY.

-- name: reserve_task_batch
-- The number of a new batch of a held task, or of the one that an earlier attempt wrote by the same call.
WITH held AS (
    SELECT q.job_id, q.node_id FROM dag_task_queue q WHERE q.task_id = :task_id AND q.lease_token = :token
),
existing AS (
    SELECT b.number, b.written_at IS NOT NULL AS is_written
    FROM held CROSS JOIN LATERAL (SELECT * FROM dag_node_batches b
                                  WHERE b.job_id = held.job_id AND b.node_id = :node_id::text
                                    AND b.call_number = :call_number::integer AND b.digest = :digest::text LIMIT 1) b
),
reserved AS (
    INSERT INTO dag_node_batches (job_id, number, node_id, call_number, digest, added_by, created_at)
    SELECT held.job_id, 1 + coalesce((SELECT max(b.number) FROM dag_node_batches b WHERE b.job_id = held.job_id), 0),
           :node_id::text, :call_number::integer, :digest::text, held.node_id, clock()
    FROM held WHERE NOT EXISTS (SELECT FROM existing)
    ON CONFLICT DO NOTHING
    RETURNING number, false AS is_written
)
SELECT held.job_id, n.number, n.is_written
FROM held LEFT JOIN (SELECT * FROM existing UNION ALL SELECT * FROM reserved) n ON true

-- name: reserve_job_batch
-- The number of a new batch of a job.
WITH job AS (
    SELECT id AS job_id FROM dag_jobs WHERE id = :job_id
),
reserved AS (
    INSERT INTO dag_node_batches (job_id, number, created_at)
    SELECT job_id, 1 + coalesce((SELECT max(b.number) FROM dag_node_batches b WHERE b.job_id = job.job_id), 0), clock()
    FROM job
    ON CONFLICT DO NOTHING
    RETURNING number
)
SELECT job.job_id, reserved.number FROM job LEFT JOIN reserved ON true

-- name: job_of_task
-- The job of a held task.
SELECT job_id FROM dag_task_queue WHERE task_id = :task_id AND lease_token = :token

-- name: batch_decision
-- Whether the owner of the job accepted a batch of a held task; no row if it has not decided. A rejected one has no key.
SELECT b.accepted_order IS NOT NULL AS is_accepted, b.rejection
FROM dag_task_queue q
CROSS JOIN LATERAL (SELECT b.accepted_order, b.node_id, b.rejection FROM dag_node_batches b
                    WHERE b.job_id = q.job_id AND b.number = :number LIMIT 1) b
WHERE q.task_id = :task_id AND q.lease_token = :token AND (b.accepted_order IS NOT NULL OR b.node_id IS NULL)

-- name: mark_written
-- A batch has its rows.
UPDATE dag_node_batches SET written_at = clock()
WHERE job_id = :job_id AND number = :number AND written_at IS NULL
RETURNING number

-- name: insert_added_nodes
-- Rows of a batch, of a worker that may not COPY into the tables.
INSERT INTO dag_added_nodes (job_id, batch, position, id, node_id, group_name, definition)
SELECT :job_id, :number, n.position, n.id, n.node_id, n.group_name, n.definition::json
FROM unnest(:positions::integer[], :ids::bigint[], :node_ids::text[], :group_names::text[], :definitions::text[])
     AS n (position, id, node_id, group_name, definition)

-- name: insert_groups
-- The same for groups.
INSERT INTO dag_groups (job_id, batch, position, id, name, parent)
SELECT :job_id, :number, n.position, n.id, n.name, n.parent
FROM unnest(:positions::integer[], :ids::bigint[], :names::text[], :parents::text[]) AS n (position, id, name, parent)

-- name: insert_dependencies
-- The same for dependencies.
INSERT INTO dag_dependencies (job_id, batch, position, previous_type, previous_id, next_type, next_id)
SELECT :job_id, :number, n.position, n.previous_type, n.previous_id, n.next_type, n.next_id
FROM unnest(:positions::integer[], :previous_types::text[], :previous_ids::text[], :next_types::text[],
            :next_ids::text[])
     AS n (position, previous_type, previous_id, next_type, next_id)

-- name: first_batch
-- The batch that a job is submitted with: it is accepted already. No row if the job was not stored.
INSERT INTO dag_node_batches (job_id, number, created_at, written_at, accepted_order)
SELECT id, 1, clock(), clock(), 1 FROM dag_jobs WHERE id = :job_id
RETURNING number

-- name: stage_batch
-- A batch is accepted with the success of the task that added it. Number 0 stands for one that is accepted by a command.
UPDATE dag_task_queue SET batches = array_append(coalesce(batches, '{}'), :number::integer)
WHERE task_id = :task_id AND lease_token = :token
RETURNING task_id

-- name: send_task_batch
-- Ask the owner of the job to accept a batch of a held task now.
SELECT c.id, pg_notify(coalesce('dagmaster_owner_' || (SELECT j.owner_id FROM dag_jobs j WHERE j.id = :job_id),
                                'dagmaster_jobs'), 'commands')::text AS notified
FROM (SELECT dag_send_batch(:task_id, :token, :number) AS id) c WHERE c.id IS NOT NULL

-- name: load_batches
-- The written batches of a job: with these numbers, or all that were accepted.
SELECT number, accepted_order, added_by FROM dag_node_batches
WHERE job_id = :job_id AND written_at IS NOT NULL
  AND CASE WHEN :numbers::integer[] IS NULL THEN accepted_order IS NOT NULL ELSE number = ANY(:numbers::integer[]) END
ORDER BY accepted_order, number

-- name: pending_batches
-- The batches that the owner of a job was asked to accept, and has not decided about.
SELECT (body ->> 'batch')::integer AS number FROM dag_inbox WHERE job_id = :job_id AND kind = 'add_nodes' ORDER BY id

-- name: load_added_nodes
-- The next nodes of batches, in order, as columns: 100,000 take half the time of rows (2026-11).
SELECT array_agg(batch) AS batches, array_agg(id) AS ids, array_agg(node_id) AS node_ids, array_agg(group_name) AS groups,
       array_agg(definition) AS definitions, (array_agg(position))[count(*)] AS last_position
FROM (SELECT batch, position, id, node_id, group_name, definition::text AS definition FROM dag_added_nodes
      WHERE job_id = :job_id AND batch = ANY(:numbers::integer[]) AND (batch, position) > (:last_batch, :last_position)
      ORDER BY batch, position LIMIT :limit) AS n

-- name: load_groups
-- The groups of batches, in order.
SELECT batch, id, name, parent FROM dag_groups
WHERE job_id = :job_id AND batch = ANY(:numbers::integer[]) ORDER BY batch, position

-- name: load_dependencies
-- The dependencies of batches, in order.
SELECT batch, previous_type, previous_id, next_type, next_id FROM dag_dependencies
WHERE job_id = :job_id AND batch = ANY(:numbers::integer[]) ORDER BY batch, position

-- name: find_added_node
-- The job, the group and the node of a task that was made in Python, if its batch was accepted or can be. The group is
-- its own batch's, else an accepted batch's: attempts that failed may have left others of that name.
SELECT n.job_id,
       (SELECT g.id FROM dag_groups g
        WHERE g.job_id = n.job_id AND g.name = n.group_name
          AND (g.batch = n.batch OR EXISTS (SELECT FROM dag_node_batches a
                                            WHERE a.job_id = g.job_id AND a.number = g.batch
                                              AND a.accepted_order IS NOT NULL))
        ORDER BY g.batch = n.batch DESC LIMIT 1) AS group_id,
       n.id, n.node_id, n.group_name, n.definition::text
FROM dag_added_nodes n
CROSS JOIN LATERAL (SELECT b.accepted_order FROM dag_node_batches b
                    WHERE b.job_id = n.job_id AND b.number = n.batch LIMIT 1) b
WHERE n.id = :id
  AND (b.accepted_order IS NOT NULL
       OR EXISTS (SELECT FROM dag_inbox i WHERE i.job_id = n.job_id AND i.kind = 'add_nodes'
                                            AND (i.body ->> 'batch')::integer = n.batch))
