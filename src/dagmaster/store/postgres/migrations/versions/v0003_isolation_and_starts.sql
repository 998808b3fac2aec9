-- Only additions: services of version 0002 continue to run on this schema while they are replaced one by one.

-- How the next attempt of a node runs after its worker died with several tasks: 1 in a process of its own, 2 as the only
-- task of its worker. NULL: as usual.
ALTER TABLE dag_node_states ADD COLUMN isolation smallint;
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

-- The oldest code that can use this schema. Each migration replaces it.
CREATE FUNCTION dag_compatible_from() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '0002' $$;
