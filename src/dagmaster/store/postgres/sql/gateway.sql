-- What a gateway reads, with the role dagmaster_gateway and under the tenant of its caller. The role may select the columns
-- that are named here and no other one: a new column needs its grant in migrations/roles.sql.

-- name: rights
-- What the role of this connection may do; nothing of it should be true but the first.
SELECT row_security_active('dagapp.dag_jobs') AND row_security_active('dagapp.dag_api_requests') AS is_limited,
       EXISTS (SELECT FROM pg_catalog.pg_tables t
               WHERE t.schemaname = 'dagapp'
                 AND has_table_privilege(format('%I.%I', t.schemaname, t.tablename), 'INSERT, UPDATE, DELETE, TRUNCATE')
              ) AS can_write,
       has_column_privilege('dagapp.dag_jobs', 'inputs', 'SELECT') AS can_read_inputs,
       has_any_column_privilege('dagapp.dag_api_keys', 'SELECT') AS can_read_keys

-- name: alive_services
-- How many orchestrators and workers have a lease.
SELECT (SELECT count(*) FROM dag_orchestrators
        WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :lease_seconds)) AS orchestrators,
       (SELECT count(*) FROM dag_workers
        WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds)) AS workers

-- name: tenants
-- Who may call, and how often.
SELECT name, rate_per_second, rate_burst, extract(epoch FROM disabled_at)::float8 AS disabled_at
FROM dag_tenants ORDER BY name

-- name: jobs
-- A page of jobs, newest first.
WITH page AS (SELECT j.id FROM dag_jobs j WHERE NOT j.is_hidden ORDER BY j.id DESC LIMIT :limit OFFSET :offset)
{@gateway_jobs}

-- name: jobs_of_workflow
-- A page of the jobs of a workflow. Compared byte by byte, as their index is.
WITH page AS (SELECT j.id FROM dag_jobs j
              WHERE j.workflow_id COLLATE "C" = :workflow_id::text AND NOT j.is_hidden
              ORDER BY j.id DESC LIMIT :limit OFFSET :offset)
{@gateway_jobs}

-- name: jobs_with_status
-- A page of the jobs with a displayed status, of a workflow if it is named.
WITH page AS (SELECT j.id FROM dag_jobs j
              WHERE j.status = :stored_status AND NOT j.is_hidden
                AND (:workflow_id::text IS NULL OR j.workflow_id COLLATE "C" = :workflow_id::text)
                AND (j.status <> 'RUNNING'
                     OR (SELECT dag_displayed_status(j.status, p.waiting, p.active) FROM dag_job_progress(j.id) p) = :status)
              ORDER BY j.id DESC LIMIT :limit OFFSET :offset)
{@gateway_jobs}

-- name: open_jobs
-- A page of the jobs that have not ended.
WITH page AS (SELECT j.id FROM dag_jobs j WHERE j.status IN ('PENDING', 'RUNNING') AND NOT j.is_hidden
              ORDER BY j.id DESC LIMIT :limit OFFSET :offset)
{@gateway_jobs}

-- name: job
-- One job.
WITH page AS (SELECT :job_id::bigint AS id)
{@gateway_jobs}

-- name: find_jobs
-- The jobs with an id of their submitter, with an idempotency key, or that a request led to; newest first.
WITH page AS (
    SELECT m.id FROM (
        (SELECT j.id FROM dag_jobs j WHERE j.correlation_id = :correlation_id::text ORDER BY j.id DESC LIMIT :limit)
        UNION
        (SELECT j.id FROM dag_jobs j WHERE j.idempotency_key = :idempotency_key::text ORDER BY j.id DESC LIMIT :limit)
        UNION
        (SELECT r.job_id FROM dag_api_requests r WHERE r.request_id = :request_id::uuid AND r.job_id IS NOT NULL)
    ) AS m ORDER BY m.id DESC LIMIT :limit)
{@gateway_jobs}

-- name: result_key
-- What signs the links to the result of a request. `actor` narrows a caller to what it sent.
SELECT r.result_key::text AS result_key FROM dag_api_requests r
WHERE r.request_id = :request_id::uuid AND (:actor::text IS NULL OR r.actor = :actor::text)

-- name: counts
-- How many jobs have which displayed status. As of `counts` in job_list.sql, hidden jobs are subtracted.
WITH open AS MATERIALIZED (
    SELECT j.id, j.status FROM dag_jobs j WHERE j.status IN ('PENDING', 'RUNNING') AND NOT j.is_hidden)
SELECT s.status, sum(s.jobs) AS jobs
FROM (
    SELECT dag_displayed_status(o.status, p.waiting, p.active) AS status, 1 AS jobs
    FROM open o LEFT JOIN LATERAL dag_job_progress(o.id) p ON o.status = 'RUNNING'
    UNION ALL
    SELECT j.status, 1 FROM dag_jobs j WHERE j.finished_at IS NOT NULL
    UNION ALL
    SELECT j.status, -1 FROM dag_jobs j WHERE j.is_hidden AND j.finished_at IS NOT NULL
) AS s
GROUP BY s.status
HAVING sum(s.jobs) > 0

-- name: started_nodes
-- The first nodes of some jobs that have started, by id.
SELECT n.job_id, {@gateway_node}
FROM unnest(:job_ids::bigint[]) AS i (id)
CROSS JOIN LATERAL (SELECT {@gateway_node_columns} FROM dag_node_states n WHERE n.job_id = i.id ORDER BY n.node_id LIMIT :limit) n
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id
ORDER BY n.job_id, n.node_id

-- name: graph_of_job
-- The graph of a job. Seen by who sees the job.
SELECT content_hash FROM dag_jobs WHERE id = :job_id

-- name: graph_nodes
-- The nodes of a graph.
SELECT n.key AS node_id FROM json_object_keys(dag_graph(:content_hash) -> 'nodes') AS n (key)

-- name: nodes
-- Nodes of a job by id: those that have started or were added, and those of its graph.
WITH page AS (
    SELECT m.node_id FROM (
        (SELECT n.node_id FROM dag_node_states n WHERE n.job_id = :job_id AND n.node_id > :after::text
         ORDER BY n.node_id LIMIT :limit)
        UNION
        SELECT g.node_id COLLATE "C" FROM unnest(:graph_nodes::text[]) AS g (node_id)
        WHERE g.node_id COLLATE "C" > :after::text
    ) AS m ORDER BY m.node_id LIMIT :limit)
SELECT page.node_id AS page_node_id, {@gateway_node}
FROM page
LEFT JOIN LATERAL (SELECT {@gateway_node_columns} FROM dag_node_states n
                   WHERE n.job_id = :job_id AND n.node_id = page.node_id LIMIT 1) n ON true
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id
ORDER BY page.node_id

-- name: events
-- Events of a job after a number, without the values that they are about.
SELECT e.seq AS event_id, e.type AS event_type, extract(epoch FROM e.at)::float8 AS created_at, e.by AS source,
       e.node_id, e.attempt
FROM dag_job_events e
WHERE e.job_id = :job_id AND e.seq > :after::integer
ORDER BY e.seq
LIMIT :limit
