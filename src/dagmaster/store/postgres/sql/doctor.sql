-- Queries of the doctor, on a dedicated connection with its own timeout.

-- name: server
-- The version of the server, and the user with its rights.
SELECT current_setting('server_version_num')::integer AS version, current_setting('server_version') AS version_text,
       current_user::text AS username, current_database()::text AS database,
       current_setting('transaction_read_only') = 'on' AS is_read_only,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       array(SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'dagmaster\_%') AS roles,
       -- By its name: a user without rights on the schema may ask.
       EXISTS (SELECT FROM pg_roles r, pg_class c
               WHERE r.rolname = 'dagmaster_worker' AND c.relname LIKE 'dag\_task\_queue' AND c.relkind = 'r'
                 AND has_table_privilege(r.oid, c.oid, 'DELETE')) AS worker_has_table_rights

-- name: clock_time
-- The time of the server's clock; needs no schema.
SELECT extract(epoch FROM clock_timestamp())::float8

-- name: live_services
-- How many orchestrators and workers are alive, how many of them drain, one that does, and which queues the others serve.
SELECT o.*, w.*
FROM (SELECT count(*) AS orchestrators, count(drain_requested_at) AS draining_orchestrators,
             min(owner_id) FILTER (WHERE drain_requested_at IS NOT NULL) AS drained_orchestrator
      FROM dag_orchestrators
      WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :lease_seconds)) o
CROSS JOIN (
    SELECT count(DISTINCT worker_id) AS workers,
           count(DISTINCT worker_id) FILTER (WHERE drain_requested_at IS NOT NULL) AS draining_workers,
           min(worker_id) FILTER (WHERE drain_requested_at IS NOT NULL) AS drained_worker,
           coalesce(bool_or(queues = '{}' AND drain_requested_at IS NULL), false) AS all_served,
           coalesce(array_agg(DISTINCT queue) FILTER (WHERE queue IS NOT NULL AND drain_requested_at IS NULL), '{}') AS served
    FROM dag_workers LEFT JOIN LATERAL unnest(queues) AS queue ON true
    WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds)) w

-- name: waiting_tasks
-- How many tasks wait in each queue.
SELECT queue, count(*) AS tasks FROM dag_task_queue WHERE worker_id IS NULL GROUP BY queue ORDER BY 2 DESC, 1

-- name: live_versions
-- The live services, and the version of the code that each runs.
SELECT 'orchestrator' AS kind, owner_id AS id, host, pid, version FROM dagapp.dag_orchestrators
WHERE stopped_at IS NULL AND heartbeat_at > clock_timestamp() - make_interval(secs => :lease_seconds)
UNION ALL
SELECT 'worker', worker_id, host, pid, version FROM dagapp.dag_workers
WHERE stopped_at IS NULL AND heartbeat_at > clock_timestamp() - make_interval(secs => :worker_lease_seconds)
ORDER BY 1, 2
