-- What readers ask about one job, about nodes and tasks across jobs, events, logs and workflows. Nothing here writes.
-- Lists of jobs are in job_list.sql, the fleet in fleet.sql, the facts of a diagnosis in diagnosis.sql.
-- Tasks are looked up one by one, here and there: statistics of the queue say nothing (see the head of worker.sql).

-- name: schema_version
-- The version of the schema.
SELECT version_num FROM dagapp.alembic_version

-- name: compatible_from
-- The oldest version of the code that can use the schema.
SELECT dag_compatible_from() AS revision

-- name: newest_job
-- The newest job that is neither a child job nor hidden.
SELECT id FROM dag_jobs WHERE parent_job_id IS NULL AND NOT is_hidden ORDER BY id DESC LIMIT 1

-- name: newest_job_of_submitter
-- The same of one submitter; the index has only jobs that have one.
SELECT id FROM dag_jobs
WHERE submitted_by = :submitted_by::text AND submitted_by <> '' AND parent_job_id IS NULL AND NOT is_hidden
ORDER BY id DESC LIMIT 1

-- name: definition
-- A stored graph.
SELECT g.definition FROM (SELECT dag_graph(:content_hash) AS definition) AS g WHERE g.definition IS NOT NULL

-- name: child_jobs
-- The child jobs of a job, oldest first, with their displayed status.
SELECT j.id, j.parent_node_id, dag_displayed_status(j.status, p.waiting, p.active) AS status
FROM dag_jobs j
LEFT JOIN LATERAL dag_job_progress(j.id) p ON j.status = 'RUNNING'
WHERE j.parent_job_id = :job_id
ORDER BY j.id

-- name: footprints
-- The children of a job's fan-outs with the places in their items and outputs, by fan-out and index. Each list of items
-- is unpacked once a page, not once a child. An output in a blob is not read.
WITH items AS (
    SELECT f.node_id AS fan_out, i.number - 1 AS number, i.item
    FROM dag_node_states f
    CROSS JOIN LATERAL json_array_elements(f.source) WITH ORDINALITY AS i (item, number)
    WHERE f.job_id = :job_id AND f.source IS NOT NULL
)
SELECT n.node_id, i.fan_out, i.number, n.attempt, n.error,
       dag_displayed_node_status(n.status, q.worker_id, q.started_at) AS status,
       json_build_object('footprint', i.item -> 'footprint', 'bbox', i.item -> 'bbox', 'geometry', i.item -> 'geometry')
           AS item,
       json_build_object('bbox', n.output -> 'bbox', 'item', json_build_object('bbox', n.output #> '{item,bbox}')) AS output
FROM items i
JOIN dag_node_states n ON n.job_id = :job_id AND n.parent_node_id = i.fan_out AND n.fan_out_index = i.number
                      AND n.skip_reason IS DISTINCT FROM 'superseded'
LEFT JOIN LATERAL (SELECT * FROM dag_task_queue q
                   WHERE n.status = 'DISPATCHED' AND q.task_id = n.task_id LIMIT 1) q ON true
WHERE (json_typeof(i.item) = 'object' OR n.output -> 'bbox' IS NOT NULL OR n.output #> '{item,bbox}' IS NOT NULL)
  AND (i.fan_out, i.number) > (:after_fan_out::text, :after_number::bigint)
ORDER BY i.fan_out, i.number
LIMIT :limit

-- name: node_values
-- The output of a node, and the params of its task while that is in flight.
SELECT n.output, n.output_ref, q.params, q.secrets
FROM dag_node_states n
LEFT JOIN LATERAL (SELECT * FROM dag_task_queue q
                   WHERE n.status = 'DISPATCHED' AND q.task_id = n.task_id LIMIT 1) q ON true
WHERE n.job_id = :job_id AND n.node_id = :node_id

-- name: item
-- One item of the list of a fan-out.
SELECT source -> :number::integer AS item FROM dag_node_states WHERE job_id = :job_id AND node_id = :fan_out

-- name: outputs
-- The outputs of some nodes that are stored in their rows.
SELECT node_id, output FROM dag_node_states
WHERE job_id = :job_id AND node_id = ANY(:node_ids::text[]) AND status = 'COMPLETED' AND output IS NOT NULL

-- name: attempts
-- The attempts at a node, newest first: the finished ones, and the one in flight.
SELECT a.job_id, a.node_id, a.attempt, a.task_id, a.status, a.queue, a.worker_id, w.host || ':' || w.pid AS worker, a.error, a.metrics,
       a.progress, extract(epoch FROM a.dispatched_at)::float8 AS dispatched_at,
       extract(epoch FROM a.claimed_at)::float8 AS claimed_at, extract(epoch FROM a.started_at)::float8 AS started_at,
       extract(epoch FROM a.completed_at)::float8 AS finished_at
FROM dag_task_attempts a
LEFT JOIN dag_workers w ON w.worker_id = a.worker_id
WHERE a.job_id = :job_id AND a.node_id = :node_id AND a.attempt < :before::integer
UNION ALL
SELECT n.job_id, n.node_id, q.attempt, q.task_id, dag_displayed_node_status('DISPATCHED', q.worker_id, q.started_at), q.queue, q.worker_id,
       w.host || ':' || w.pid, NULL, NULL, q.progress, extract(epoch FROM q.dispatched_at)::float8,
       extract(epoch FROM q.claimed_at)::float8, extract(epoch FROM q.started_at)::float8, NULL
FROM dag_node_states n
CROSS JOIN LATERAL (SELECT * FROM dag_task_queue q WHERE q.task_id = n.task_id LIMIT 1) q
LEFT JOIN dag_workers w ON w.worker_id = q.worker_id
WHERE n.job_id = :job_id AND n.node_id = :node_id AND n.status = 'DISPATCHED' AND q.attempt < :before::integer
ORDER BY attempt DESC
LIMIT :limit

-- name: attempt_count
-- How many attempts of a job have started: finished ones, reported ones and those in flight.
SELECT (SELECT count(*) FROM dag_task_attempts a
        WHERE a.job_id = :job_id AND dag_has_started(a.status, a.claimed_at, a.started_at))
     + (SELECT count(*) FROM dag_task_results r
        WHERE r.job_id = :job_id AND dag_has_started(r.status, r.claimed_at, r.started_at))
     -- An array of ids, as in `backlog`.
     + (SELECT count(*) FROM dag_task_queue q
        WHERE q.task_id = ANY(array(SELECT n.task_id FROM dag_node_states n
                                    WHERE n.job_id = :job_id AND n.status = 'DISPATCHED' AND n.task_id IS NOT NULL))
          AND q.started_at IS NOT NULL) AS attempts

-- name: waits
-- What waiting nodes of a job wait for, and since when.
SELECT DISTINCT ON (e.node_id) e.node_id, extract(epoch FROM e.at)::float8 AS at, e.data
FROM dag_job_events e
WHERE e.job_id = :job_id AND e.type IN ('ApprovalRequested', 'NodeWaiting') AND e.node_id = ANY(:node_ids::text[])
ORDER BY e.node_id, e.seq DESC

-- name: tasks
-- Tasks in flight across jobs, newest first.
SELECT {@queued_task}
FROM dag_task_queue q
WHERE q.task_id < :before_id::bigint
  AND (:queue::text IS NULL OR q.queue = :queue::text)
  AND (:worker_id::bigint IS NULL OR q.worker_id = :worker_id::bigint)
  AND (:job_id::bigint IS NULL OR q.job_id = :job_id::bigint)
  AND (:handler::text IS NULL OR q.handler = :handler::text)
  AND (:is_claimed::boolean IS NULL OR (q.worker_id IS NOT NULL) = :is_claimed::boolean)
ORDER BY q.task_id DESC
LIMIT :limit

-- name: backlog
-- The unclaimed tasks of a job by queue, those that must run alone apart. An array of ids leaves one plan only, the primary key: for a join the
-- planner once chose a bad join order, at 10 s for 10,000 tasks.
SELECT q.queue, q.isolation IS NOT DISTINCT FROM 2 AS is_exclusive, count(*) AS tasks,
       extract(epoch FROM clock() - min(q.dispatched_at))::float8 AS oldest_seconds
FROM dag_task_queue q
WHERE q.task_id = ANY(array(SELECT n.task_id FROM dag_node_states n
                            WHERE n.job_id = :job_id AND n.status = 'DISPATCHED' AND n.task_id IS NOT NULL))
  AND coalesce(q.worker_id, 0) = 0 AND q.stop_requested_at IS NULL
GROUP BY 1, 2
ORDER BY 1, 2

-- name: pending_commands
-- The commands to a job that no owner has processed, oldest first.
SELECT id::text AS command_id, kind, sent_by, extract(epoch FROM clock() - created_at)::float8 AS age_seconds
FROM dag_inbox
WHERE job_id = :job_id AND kind <> 'child_finished' AND id > :after_id::bigint
ORDER BY id
LIMIT :limit

-- name: events
-- Audit events of a job after a number. With `node_ids`: events of the job, of these nodes, and every failure.
SELECT job_id, seq, type, extract(epoch FROM at)::float8 AS at, by, node_id, attempt, data
FROM dag_job_events
WHERE job_id = :job_id AND seq > :after::integer
  AND (:node_ids::text[] IS NULL OR node_id IS NULL OR node_id = ANY(:node_ids::text[])
       OR type IN ('AttemptFailed', 'AttemptLost', 'NodeFailed', 'CommandRejected'))
ORDER BY seq
LIMIT :limit

-- name: recent_events
-- Audit events across jobs in a window of time, newest first; not of hidden jobs. With `recent_seconds`: of the last seconds
-- alone, by the clock of the database. As a subquery it is read once, so that partitions and pages are left out by it.
SELECT job_id, seq, type, extract(epoch FROM at)::float8 AS at, by, node_id, attempt, data
FROM dag_job_events
WHERE at >= greatest(to_timestamp(:since::float8), (SELECT clock()) - make_interval(secs => :recent_seconds::float8))
  AND at <= to_timestamp(:until::float8)
  AND (at, job_id, seq) < (to_timestamp(:after_at::float8), :after_job_id::bigint, :after_seq::integer)
  AND (:types::text[] IS NULL OR type = ANY(:types::text[]))
  AND job_id NOT IN (SELECT j.id FROM dag_jobs j WHERE j.is_hidden)
ORDER BY dag_job_events.at DESC, job_id DESC, seq DESC
LIMIT :limit

-- name: event_counts
-- How many audit events of each type there are in a window of time; not of hidden jobs.
SELECT type, count(*) AS events FROM dag_job_events
WHERE at >= to_timestamp(:since::float8) AND at < to_timestamp(:until::float8)
  AND job_id NOT IN (SELECT j.id FROM dag_jobs j WHERE j.is_hidden)
GROUP BY type

-- name: logs
-- Chunks of the logs of a job's tasks, in the order in which they were written or in reverse. The collation "C" folds
-- ASCII letters alone, whatever the locale of the database.
SELECT l.task_id, l.chunk, l.node_id, l.attempt, extract(epoch FROM l.at)::float8 AS at, l.text
FROM dag_task_logs l
WHERE l.job_id = :job_id AND (:node_ids::text[] = '{}' OR l.node_id = ANY(:node_ids::text[]))
  AND (:attempt::integer IS NULL OR l.attempt = :attempt::integer)
  AND (:since::float8 IS NULL OR l.at >= to_timestamp(:since::float8))
  AND (:until::float8 IS NULL OR l.at <= to_timestamp(:until::float8))
  AND (:after_at::float8 IS NULL
       OR CASE WHEN :newest_first::boolean
               THEN (l.at, l.task_id, l.chunk) < (to_timestamp(:after_at::float8), :task_id::bigint, :chunk::integer)
               ELSE (l.at, l.task_id, l.chunk) > (to_timestamp(:after_at::float8), :task_id::bigint, :chunk::integer)
          END)
  AND (:contains::text IS NULL OR strpos(lower(l.text COLLATE "C"), lower(:contains::text COLLATE "C")) > 0
       -- The text may begin at the end of this chunk, and go on in the next one.
       OR EXISTS (SELECT FROM (SELECT lower(right(l.text, length(:contains::text) - 1) COLLATE "C") AS tail OFFSET 0) AS t,
                              generate_series(1, length(:contains::text) - 1) AS n
                  WHERE right(t.tail, n) = lower(left(:contains::text, n) COLLATE "C")))
  AND (:words::text[] = '{}' OR EXISTS (SELECT FROM unnest(:words::text[]) AS w WHERE strpos(l.text, w) > 0)
       OR EXISTS (SELECT FROM (SELECT right(l.text, 20) AS tail OFFSET 0) AS t, unnest(:words::text[]) AS w,
                              generate_series(1, length(w) - 1) AS n
                  WHERE right(t.tail, n) = left(w, n))
       OR (:contains::text IS NOT NULL AND l.chunk > 1
           AND NOT EXISTS (SELECT FROM dag_task_logs p
                           WHERE p.task_id = l.task_id AND p.chunk = l.chunk - 1 AND right(p.text, 1) = E'\n')))
ORDER BY CASE WHEN :newest_first::boolean THEN l.at END DESC,
         CASE WHEN :newest_first::boolean THEN l.task_id END DESC,
         CASE WHEN :newest_first::boolean THEN l.chunk END DESC,
         l.at, l.task_id, l.chunk
LIMIT :limit

-- name: log_chunk
-- One chunk of the log of a task.
SELECT l.task_id, l.chunk, l.node_id, l.attempt, extract(epoch FROM l.at)::float8 AS at, l.text
FROM dag_task_logs l WHERE l.task_id = :task_id::bigint AND l.chunk = :chunk::integer

-- name: workflows
-- The published workflows by id: their versions, the active one, and the name and tags in its definition. Of an id that the
-- tenant and the installation have, the tenant's own; on behalf of the installation all of them.
SELECT w.workflow_id, w.tenant, w.versions_total, w.newest_version, w.active_version, w.published_at,
       extract(epoch FROM clock())::float8 AS read_at, g.definition ->> 'name' AS name, t.tags
FROM (SELECT workflow_id, tenant, count(*) AS versions_total, max(version) AS newest_version,
             max(version) FILTER (WHERE is_active) AS active_version,
             extract(epoch FROM max(created_at))::float8 AS published_at,
             (array_agg(content_hash ORDER BY is_active DESC, version DESC))[1] AS content_hash
      FROM dag_workflows
      WHERE (workflow_id COLLATE "C", tenant) > (:after::text, :after_tenant::text)
        AND (coalesce(nullif(dag_tenant(), ''), '*') = '*' OR tenant = dag_workflow_tenant(workflow_id, dag_tenant()))
      GROUP BY workflow_id, tenant) AS w
CROSS JOIN LATERAL (SELECT dag_graph(w.content_hash) AS definition OFFSET 0) AS g
CROSS JOIN LATERAL (
    SELECT array(SELECT json_array_elements_text(g.definition -> 'tags')) AS tags
) AS t
WHERE :tag::text IS NULL OR :tag::text = ANY(t.tags)
ORDER BY w.workflow_id COLLATE "C", w.tenant
LIMIT :limit

-- name: versions
-- The versions of a workflow, oldest first; all of them if the limit is NULL. A tenant's own, else the installation's.
SELECT workflow_id, version, content_hash, is_active, extract(epoch FROM created_at)::float8 AS published_at
FROM dag_workflows
WHERE workflow_id = :workflow_id
  AND tenant = CASE WHEN :is_own::boolean THEN dag_new_tenant() ELSE dag_workflow_tenant(:workflow_id, dag_new_tenant()) END
  AND version > :after::integer
ORDER BY version LIMIT :limit::bigint

-- name: fleet_counts
-- How many orchestrators and workers are alive and claim, how many orchestrators drain, and how many could not write.
SELECT o.orchestrators,
       (SELECT count(*) FROM dag_workers
        WHERE stopped_at IS NULL AND drain_requested_at IS NULL AND counters ->> 'draining' IS DISTINCT FROM 'true'
          AND heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds)) AS workers,
       o.draining_orchestrators, o.hindered_orchestrators
FROM (SELECT count(*) FILTER (WHERE drain_requested_at IS NULL) AS orchestrators,
             count(*) FILTER (WHERE drain_requested_at IS NOT NULL) AS draining_orchestrators,
             count(*) FILTER (WHERE counters ->> 'database_condition' IS NOT NULL) AS hindered_orchestrators
      FROM dag_orchestrators
      WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :lease_seconds)) o

-- name: now
-- The clock of the database.
SELECT extract(epoch FROM clock())::float8 AS now
