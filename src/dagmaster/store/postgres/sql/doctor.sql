-- Queries of the doctor, on a connection and with a timeout of its own.

-- name: server
-- The version of the server, and the user with its rights.
SELECT current_setting('server_version_num')::integer AS version, current_setting('server_version') AS version_text,
       current_user::text AS username, current_database()::text AS database,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       array(SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'dagmaster\_%') AS roles

-- name: clock_time
-- The time of the server's clock; needs no schema.
SELECT extract(epoch FROM clock_timestamp())::float8

-- name: live_services
-- How many orchestrators and workers are alive, and which queues are served.
SELECT (SELECT count(*) FROM dag_orchestrators
        WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :lease_seconds)) AS orchestrators,
       count(DISTINCT worker_id) AS workers, coalesce(bool_or(queues = '{}'), false) AS all_served,
       coalesce(array_agg(DISTINCT queue) FILTER (WHERE queue IS NOT NULL), '{}') AS served
FROM dag_workers LEFT JOIN LATERAL unnest(queues) AS queue ON true
WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds)

-- name: waiting_tasks
-- How many tasks wait in each queue.
SELECT queue, count(*) AS tasks FROM dag_task_queue WHERE worker_id IS NULL GROUP BY queue ORDER BY 2 DESC, 1
