-- Services of version 0002 that run continue to run on this schema, so that they can be replaced one by one. They do not
-- start again on it: they know no newer schema.

-- How often a worker died with this task and others; NULL: never. It decides how the next attempt runs: 1 in a process
-- of its own, 2 as the only task of its worker, NULL as usual.
ALTER TABLE dag_node_states ADD COLUMN shared_losses smallint;
ALTER TABLE dag_task_queue ADD COLUMN isolation smallint;
CREATE INDEX dag_task_queue_exclusive ON dag_task_queue (priority DESC, task_id) WHERE isolation = 2 AND worker_id IS NULL;

-- Whether a worker with these queues serves a queue. One without queues serves all but those of live `run`s.
CREATE FUNCTION dag_is_served(queue text, queues text[]) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT queue = ANY(queues)
        OR (queues = '{}' AND (queue NOT LIKE 'run:%'
                               OR NOT EXISTS (SELECT FROM dagapp.dag_workers w
                                              WHERE queue = ANY(w.queues) AND w.stopped_at IS NULL)))
$$;

-- When the handler of a task started: a worker claims more tasks than it runs. In the queue it is written only for
-- tasks that run for a while, in results and attempts for all. NULL: it did not start, or a worker of 0002 ran it.
ALTER TABLE dag_task_queue ADD COLUMN started_at timestamptz,
    ADD CONSTRAINT dag_task_queue_started CHECK (started_at IS NULL OR worker_id IS NOT NULL);
ALTER TABLE dag_task_results ADD COLUMN started_at timestamptz;
ALTER TABLE dag_task_attempts ADD COLUMN started_at timestamptz;

-- The displayed status of a node: the same rule as `in_flight_status` in engine/status.py. Every query uses this
-- function; services of 0002 use the one without `started_at`.
CREATE FUNCTION dag_displayed_node_status(status text, worker_id bigint, started_at timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN status <> 'DISPATCHED' THEN status
                WHEN started_at IS NOT NULL THEN 'RUNNING'
                WHEN worker_id IS NOT NULL THEN 'CLAIMED'
                ELSE status END
$$;
-- Whether a finished attempt counts as an attempt of its job: its handler started. Versions before 0003 did not store
-- that: then a completed or failed one counts that a worker had claimed.
CREATE FUNCTION dag_has_started(status text, claimed_at timestamptz, started_at timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT started_at IS NOT NULL OR (claimed_at IS NOT NULL AND status IN ('COMPLETED', 'FAILED'))
$$;

-- A job without a name of its own has that of its workflow, and NULL here: then it is not in the index of names, nor one
-- without a submitter in that of submitters (ADR 0017).
ALTER TABLE dag_jobs ALTER COLUMN name DROP NOT NULL;
DROP INDEX dag_jobs_workflow, dag_jobs_name, dag_jobs_submitter;
CREATE INDEX dag_jobs_workflow ON dag_jobs (workflow_id COLLATE "C", id);
CREATE INDEX dag_jobs_name ON dag_jobs (name, id) WHERE name IS NOT NULL;
CREATE INDEX dag_jobs_submitter ON dag_jobs (submitted_by, id) WHERE submitted_by <> '';
-- The foreign key looks here when a job is deleted; few jobs resume another. A database that was made between the
-- releases of 0002 and 0003 has this index already.
CREATE INDEX IF NOT EXISTS dag_jobs_resumed_from ON dag_jobs (resumed_from) WHERE resumed_from IS NOT NULL;

-- The oldest code that can use this schema. Each migration replaces it.
CREATE FUNCTION dag_compatible_from() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '0002' $$;
