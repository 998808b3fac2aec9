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

-- The oldest code that can use this schema. Each migration replaces it.
CREATE FUNCTION dag_compatible_from() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '0002' $$;
