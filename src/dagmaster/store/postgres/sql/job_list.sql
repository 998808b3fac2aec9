-- The parts of queries about jobs. A query has only the conditions that its filter sets, so that each of them can use
-- its index (ADR 0017). `{…}` stands for other parts, see job_list.py.

-- name: one
-- The page of one job.
WITH page AS (SELECT :job_id::bigint AS id),
{records}

-- name: some
-- The page of some jobs, by their ids.
WITH page AS (SELECT n.id FROM unnest(:job_ids::bigint[]) AS n (id)),
{records}

-- name: newest
-- The page of the newest job of each workflow that has one.
WITH page AS (SELECT n.id
              FROM unnest(:workflow_ids::text[]) AS w (workflow_id)
              CROSS JOIN LATERAL (SELECT j.id FROM dag_jobs j
                                  -- "C": the collation of the index.
                                  WHERE j.workflow_id = w.workflow_id COLLATE "C" AND NOT j.is_hidden
                                  ORDER BY j.id DESC LIMIT 1) AS n),
{records}

-- name: page
-- A page of jobs, newest or oldest first, out of branches that are limited each.
WITH page AS (SELECT m.id FROM ({branches}) AS m ORDER BY m.id {order} LIMIT :limit),
{records}

-- name: branch
-- The first jobs that match; with a status, those that have it.
(SELECT j.id FROM {source} WHERE {conditions} ORDER BY j.id {order} LIMIT :limit)

-- name: open_branch
-- The first open jobs that match, by their displayed status. Materialized, so that they are found by the index of open
-- jobs and not among all jobs in the order of ids. OFFSET 0, so that the status is derived in this order, and not of
-- more jobs than fit the page.
(WITH open AS MATERIALIZED ({open_jobs})
 SELECT o.id
 FROM (SELECT open.id, open.status FROM open ORDER BY open.id {order} OFFSET 0) AS o
 LEFT JOIN LATERAL dag_job_progress(o.id) p ON o.status = 'RUNNING'
 WHERE dag_displayed_status(o.status, p.waiting, p.active) IN ({statuses})
 ORDER BY o.id {order} LIMIT :limit)

-- name: open_jobs
-- The open jobs that match.
SELECT j.id, j.status FROM {source} WHERE {conditions} AND j.status IN ('PENDING', 'RUNNING')

-- name: finished_jobs
-- The finished jobs that match, for counting. The index of finished jobs holds all that is read, if nothing else is asked.
SELECT j.status FROM {source} WHERE {conditions} AND j.finished_at IS NOT NULL

-- name: finished_jobs_once
-- The same with ids: a job may match by its name and by its submitter.
SELECT j.status, j.id FROM {source} WHERE {conditions} AND j.finished_at IS NOT NULL

-- name: counts
-- How many jobs have which displayed status. The index of finished jobs does not know which are hidden: these few are
-- subtracted, so that the others are still counted from the index alone.
WITH open AS MATERIALIZED ({open_jobs})
SELECT s.status, sum(s.jobs) AS jobs
FROM (
    SELECT dag_displayed_status(o.status, p.waiting, p.active) AS status, 1 AS jobs
    FROM open o LEFT JOIN LATERAL dag_job_progress(o.id) p ON o.status = 'RUNNING'
    UNION ALL
    SELECT f.status, 1 FROM ({finished_jobs}) AS f
    UNION ALL
    SELECT h.status, -1 FROM ({hidden_jobs}) AS h
) AS s
WHERE {only}
GROUP BY s.status
HAVING sum(s.jobs) > 0

-- name: status
-- Jobs with a stored status, as a constant: then a partial index may be used.
j.status = '{status}'

-- name: only
-- Only these displayed statuses.
s.status IN ({statuses})

-- name: visible
-- Jobs that lists show.
NOT j.is_hidden

-- name: hidden
-- Jobs that lists leave out, as those that test a handler.
j.is_hidden

-- name: after
-- Jobs after a page.
j.id < :after_id::bigint

-- name: equality
-- Jobs with a value in a column: a field of the filter that has no part of its name.
j.{column} = {value}

-- name: workflow_id
-- Jobs of a workflow. Compared byte by byte, as their index is.
j.workflow_id COLLATE "C" = :workflow_id::text

-- name: tenant
-- Jobs of a tenant; the index leaves the installation's out.
j.tenant = :tenant::text AND j.tenant <> 'default'

-- name: default_tenant
-- Jobs of the installation itself.
j.tenant = 'default'

-- name: own_name
-- Jobs that were given this name.
j.name = :name::text

-- name: default_name
-- Jobs without a name, which have that of their workflow.
j.name IS NULL AND j.workflow_id COLLATE "C" = :name::text

-- name: submitted_by
-- Jobs of a submitter; the index has only those that have one.
j.submitted_by = :submitted_by::text AND j.submitted_by <> ''

-- name: no_submitter
-- Jobs without a submitter.
j.submitted_by = ''

-- name: resumed_from
-- Jobs that were resumed from others.
j.resumed_from = ANY (:resumed_from::bigint[])

-- name: created_after
-- Jobs created at or after a time. An id begins with the time at which it was made: it bounds what is read.
j.id >= :created_after_id::bigint AND j.created_at >= to_timestamp(:created_after::float8)

-- name: created_before
-- Jobs created before a time.
j.id < :created_before_id::bigint AND j.created_at < to_timestamp(:created_before::float8)

-- name: finished_after
-- Jobs finished at or after a time.
j.finished_at >= to_timestamp(:finished_after::float8)

-- name: finished_before
-- Jobs finished before a time: they were created before it. Without the id, a list of old jobs begins at the newest one.
j.id < :finished_before_id::bigint AND j.finished_at < to_timestamp(:finished_before::float8)

-- name: own_name_prefix
-- Jobs that were given a name with a prefix.
j.name >= :prefix::text AND (:prefix_end::text IS NULL OR j.name < :prefix_end::text)

-- name: default_name_prefix
-- Jobs without a name whose workflow has a prefix.
j.name IS NULL AND j.workflow_id COLLATE "C" >= :prefix::text
    AND (:prefix_end::text IS NULL OR j.workflow_id COLLATE "C" < :prefix_end::text)

-- name: submitter_prefix
-- Jobs whose submitter has a prefix.
j.submitted_by <> '' AND j.submitted_by >= :prefix::text
    AND (:prefix_end::text IS NULL OR j.submitted_by < :prefix_end::text)

-- name: correlation_prefix
-- Jobs whose correlation id has a prefix.
j.correlation_id >= :prefix::text AND (:prefix_end::text IS NULL OR j.correlation_id < :prefix_end::text)

-- name: id_prefix
-- Jobs whose id begins with these digits: one range of numbers for each count of digits that may follow.
({ranges})

-- name: id_range
-- Ids that have some digits more than the prefix.
j.id BETWEEN least(:id_prefix::bigint::numeric * {scale}, 9223372036854775807)::bigint
         AND least(:id_prefix::bigint::numeric * {scale} + {scale} - 1, 9223372036854775807)::bigint

-- name: jobs
-- All jobs.
dag_jobs j

-- name: records
-- The jobs of a page as records, in its order. Each is looked up by its id: statistics of a table that has just been
-- filled would choose a scan.
graphs AS (
    SELECT h.content_hash, count(*) AS nodes,
           array_agg(n.key) FILTER (WHERE n.value ->> 'type' = 'fan_out') AS fan_outs
    FROM (SELECT DISTINCT j.content_hash
          FROM page
          CROSS JOIN LATERAL (SELECT j.content_hash FROM dag_jobs j WHERE j.id = page.id LIMIT 1) j) AS h
    CROSS JOIN LATERAL json_each(dag_graph(h.content_hash) -> 'nodes') AS n
    GROUP BY h.content_hash
)
SELECT j.id AS job_id, {@shown_columns}, coalesce(j.name, j.workflow_id) AS name,
       dag_displayed_status(j.status, p.waiting, p.active) AS status,
       j.cancel_requested_at IS NOT NULL AS is_cancelling, j.ending AS is_ending,
       coalesce(g.nodes, 0) + coalesce(c.children, 0) + coalesce(a.nodes, 0) AS nodes_total, p.finished AS nodes_finished,
       extract(epoch FROM clock())::float8 AS read_at,
       CASE WHEN j.run > 1 THEN (SELECT extract(epoch FROM e.at)::float8 FROM dag_job_events e
                                  WHERE e.job_id = j.id AND e.type = 'JobResumed' ORDER BY e.seq DESC LIMIT 1) END
           AS resumed_at,
       o.owner_id, o.host AS owner_host, o.pid AS owner_pid,
       extract(epoch FROM o.heartbeat_at)::float8 AS owner_heartbeat_at, o.stopped_at IS NOT NULL AS owner_has_stopped,
       (o.counters ->> 'last_heartbeat_at')::float8 AS owner_last_heartbeat_at{values}
FROM page
CROSS JOIN LATERAL (SELECT * FROM dag_jobs j WHERE j.id = page.id LIMIT 1) j
LEFT JOIN LATERAL dag_job_progress(j.id) p ON j.status = 'RUNNING'
LEFT JOIN graphs g ON g.content_hash = j.content_hash
LEFT JOIN LATERAL (
    SELECT sum(n.source_count) AS children FROM dag_node_states n
    WHERE n.job_id = j.id AND n.node_id = ANY(g.fan_outs)
) c ON true
LEFT JOIN LATERAL (
    -- The last position of a batch is read from the end of its key: 100,000 nodes are not counted.
    SELECT sum(coalesce((SELECT d.position + 1 FROM dag_added_nodes d WHERE d.job_id = b.job_id AND d.batch = b.number
                         ORDER BY d.job_id DESC, d.batch DESC, d.position DESC LIMIT 1), 0)
             + coalesce((SELECT d.position + 1 FROM dag_groups d WHERE d.job_id = b.job_id AND d.batch = b.number
                         ORDER BY d.job_id DESC, d.batch DESC, d.position DESC LIMIT 1), 0)) AS nodes
    FROM dag_node_batches b WHERE b.job_id = j.id AND b.accepted_order IS NOT NULL AND NOT b.is_superseded
) a ON true
LEFT JOIN dag_orchestrators o ON o.owner_id = j.owner_id
ORDER BY j.id {order}

-- name: values
-- Columns read for a single job only.
, j.inputs, j.result, j.result_ref
