-- Nodes, groups and dependencies that are added to the graph of one job: by a running task, from outside, or when a
-- graph that was built in Python is submitted. Services of version 0005 continue to run on this schema; a job with added
-- nodes needs services of this one.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

-- A batch is written by the worker or client that adds it, and accepted by the owner of the job, as a whole. Rows without an accepted batch
-- were added by an attempt that did not succeed.
CREATE TABLE dag_node_batches (
    job_id      bigint NOT NULL REFERENCES dag_jobs ON DELETE CASCADE,
    number      integer NOT NULL CHECK (number >= 1),
    -- The call of a running task that added it at once: a later attempt makes the same call.
    node_id     text COLLATE "C",
    call_number integer,
    digest      text,
    created_at  timestamptz NOT NULL,
    -- Set with its rows.
    written_at  timestamptz,
    -- Its place among the accepted batches of the job; those of one attempt share one, and are added as a whole.
    accepted_order integer,
    PRIMARY KEY (job_id, number),
    CHECK ((node_id IS NULL) = (call_number IS NULL) AND (node_id IS NULL) = (digest IS NULL)),
    CHECK (accepted_order IS NULL OR written_at IS NOT NULL)
);
CREATE UNIQUE INDEX dag_node_batches_calls ON dag_node_batches (job_id, node_id, call_number, digest)
    WHERE node_id IS NOT NULL;

-- No foreign keys below: a check for each of 100,000 nodes and 200,000 dependencies would cost more than the insert.
CREATE TABLE dag_added_nodes (
    job_id     bigint NOT NULL,
    batch      integer NOT NULL,
    position   integer NOT NULL,
    id         bigint NOT NULL,
    node_id    text COLLATE "C" NOT NULL,
    group_name text COLLATE "C",
    definition json NOT NULL,
    PRIMARY KEY (job_id, batch, position)
);
-- A task that was made in Python is looked up by its own id.
CREATE UNIQUE INDEX dag_added_nodes_id ON dag_added_nodes (id);

-- They were not used before.
DROP TABLE dag_groups, dag_dependencies;
CREATE TABLE dag_groups (
    job_id   bigint NOT NULL,
    batch    integer NOT NULL,
    position integer NOT NULL,
    id       bigint NOT NULL,
    name     text COLLATE "C" NOT NULL,
    parent   text COLLATE "C",
    PRIMARY KEY (job_id, batch, position)
);
CREATE TABLE dag_dependencies (
    job_id        bigint NOT NULL,
    batch         integer NOT NULL,
    position      integer NOT NULL,
    previous_type text NOT NULL CHECK (previous_type IN ('task', 'group')),
    previous_id   text COLLATE "C" NOT NULL,
    next_type     text NOT NULL CHECK (next_type IN ('task', 'group')),
    next_id       text COLLATE "C" NOT NULL,
    PRIMARY KEY (job_id, batch, position)
);

-- The batches that a task in flight added, to be accepted with its success. NULL for nearly all tasks.
ALTER TABLE dag_task_queue ADD COLUMN batches integer[];
ALTER TABLE dag_task_results ADD COLUMN batches integer[];

-- Ask the owner of a job to accept a batch of a task that is held. With the rights of the owner of the schema: a worker
-- may send no other command.
CREATE FUNCTION dag_send_batch(held_task_id bigint, held_token bigint, batch integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = dagapp, pg_temp AS $$
    INSERT INTO dag_inbox (job_id, kind, body, sent_by, created_at)
    SELECT q.job_id, 'add_nodes', json_build_object('batch', batch, 'node', q.node_id), 'task ' || q.node_id, clock()
    FROM dag_task_queue q WHERE q.task_id = held_task_id AND q.lease_token = held_token
    RETURNING id
$$;
REVOKE ALL ON FUNCTION dag_send_batch FROM PUBLIC;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_gateway') THEN
        RETURN;
    END IF;
    GRANT SELECT, INSERT, UPDATE, DELETE ON dag_node_batches, dag_added_nodes, dag_groups, dag_dependencies
        TO dagmaster_orchestrator;
    GRANT EXECUTE ON FUNCTION dag_send_batch TO dagmaster_orchestrator, dagmaster_worker;
    GRANT SELECT, INSERT, UPDATE ON dag_node_batches TO dagmaster_worker;
    GRANT SELECT, INSERT ON dag_added_nodes, dag_groups, dag_dependencies TO dagmaster_worker;
    GRANT SELECT ON dag_node_batches, dag_added_nodes, dag_groups, dag_dependencies TO dagmaster_gateway;
END $$;
