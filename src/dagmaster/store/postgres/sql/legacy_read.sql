-- What those who look on ask. Nothing here writes, and nothing lists a fan-out's children one by one unless asked to.

-- name: jobs
-- The newest jobs, with how many of their nodes are over. A RUNNING job that only waits is shown as WAITING.
WITH found AS (
    SELECT j.id, j.workflow_id, j.version, j.content_hash, j.status, j.run, j.priority, j.submitted_by, j.owner_id,
           j.parent_job_id, j.event_seq, j.created_at, j.started_at, j.finished_at, j.error,
           j.cancel_requested_at IS NOT NULL AS cancelling, p.over, p.waiting, p.moving
    FROM dag_jobs j
    LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE n.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')
                                  AND n.skip_reason IS DISTINCT FROM 'superseded') AS over,
               count(*) FILTER (WHERE n.status = 'WAITING') AS waiting,
               count(*) FILTER (WHERE n.status IN ('READY', 'DISPATCHED', 'RUNNING') AND n.source_count IS NULL)
                   AS moving
        FROM dag_node_states n WHERE n.job_id = j.id
    ) p ON j.status = 'RUNNING'
    WHERE j.id >= :oldest::bigint
      AND (:workflow_id::text IS NULL OR j.workflow_id = :workflow_id::text)
      AND (:statuses::text[] IS NULL
           OR CASE WHEN j.status = 'RUNNING' AND p.waiting > 0 AND p.moving = 0 THEN 'WAITING' ELSE j.status END
              = ANY(:statuses::text[]))
    ORDER BY j.id DESC
    LIMIT :most
),
graphs AS (
    SELECT g.content_hash, count(*) AS nodes,
           array_agg(n.key) FILTER (WHERE n.value ->> 'type' = 'fan_out') AS fans
    FROM (SELECT DISTINCT content_hash FROM found) AS f
    JOIN dag_graphs g ON g.content_hash = f.content_hash
    CROSS JOIN LATERAL json_each(g.definition -> 'nodes') AS n
    GROUP BY g.content_hash
)
SELECT f.id, f.workflow_id, f.version, f.run, f.priority, f.submitted_by, f.owner_id, f.parent_job_id, f.cancelling,
       f.error,
       CASE WHEN f.status = 'RUNNING' AND f.waiting > 0 AND f.moving = 0 THEN 'WAITING' ELSE f.status END AS status,
       extract(epoch FROM f.created_at)::float8 AS created_at, extract(epoch FROM f.started_at)::float8 AS started_at,
       extract(epoch FROM f.finished_at)::float8 AS finished_at, extract(epoch FROM clock())::float8 AS now,
       f.over, g.nodes + coalesce(c.children, 0) AS nodes,
       CASE WHEN f.run > 1 THEN (SELECT extract(epoch FROM e.at)::float8 FROM dag_job_events e
                                  WHERE e.job_id = f.id AND e.type = 'JobResumed' ORDER BY e.seq DESC LIMIT 1) END
           AS resumed_at
FROM found f
LEFT JOIN graphs g ON g.content_hash = f.content_hash
LEFT JOIN LATERAL (
    SELECT sum(n.source_count) AS children FROM dag_node_states n
    WHERE n.job_id = f.id AND n.node_id = ANY(g.fans)
) c ON true
ORDER BY f.id DESC

-- name: newest
-- The newest job that nobody started for a node of another.
SELECT id FROM dag_jobs WHERE parent_job_id IS NULL ORDER BY id DESC LIMIT 1

-- name: job
-- All of one job but its graph, who owns it, and when its last run began if that is not its first.
SELECT j.id, j.workflow_id, j.version, j.content_hash, j.status, j.run, j.priority, j.inputs, j.result, j.result_ref,
       j.error, j.submitted_by, j.correlation_id, j.idempotency_key, j.queue, j.event_seq, j.parent_job_id,
       j.parent_node_id, j.resumed_from, j.cancel_requested_at IS NOT NULL AS cancelling, j.ending,
       extract(epoch FROM j.deadline_at)::float8 AS deadline_at, extract(epoch FROM j.created_at)::float8 AS created_at,
       extract(epoch FROM j.started_at)::float8 AS started_at, extract(epoch FROM j.finished_at)::float8 AS finished_at,
       extract(epoch FROM clock())::float8 AS now, o.owner_id, o.host, o.pid,
       extract(epoch FROM clock() - o.heartbeat_at)::float8 AS silent_seconds,
       CASE WHEN j.run > 1 THEN (SELECT extract(epoch FROM e.at)::float8 FROM dag_job_events e
                                  WHERE e.job_id = j.id AND e.type = 'JobResumed' ORDER BY e.seq DESC LIMIT 1) END
           AS resumed_at
FROM dag_jobs j
LEFT JOIN dag_orchestrators o ON o.owner_id = j.owner_id
WHERE j.id = :job_id

-- name: pulse
-- Whether there is anything new to read of a job.
SELECT event_seq, status, extract(epoch FROM clock())::float8 AS now FROM dag_jobs WHERE id = :job_id

-- name: definition
-- A stored graph.
SELECT definition FROM dag_graphs WHERE content_hash = :content_hash

-- name: nodes
-- The rows of some nodes. A task that a worker holds is RUNNING.
SELECT n.node_id, CASE WHEN n.status = 'DISPATCHED' AND q.worker_id IS NOT NULL THEN 'RUNNING' ELSE n.status END AS status,
       n.skip_reason, n.attempt, n.failed_attempts, n.branch, n.parent_node_id, n.source_count, n.expanded_count, n.error, n.output_ref,
       extract(epoch FROM n.wake_at)::float8 AS wake_at,
       extract(epoch FROM coalesce(n.started_at, q.claimed_at))::float8 AS started_at,
       extract(epoch FROM n.finished_at)::float8 AS finished_at,
       q.queue, q.worker_id, q.progress, extract(epoch FROM q.dispatched_at)::float8 AS dispatched_at
FROM dag_node_states n
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id AND n.status = 'DISPATCHED'
WHERE n.job_id = :job_id AND n.node_id = ANY(:node_ids::text[])

-- name: all_nodes
-- The rows of all nodes, children of fan-outs too.
SELECT n.node_id, CASE WHEN n.status = 'DISPATCHED' AND q.worker_id IS NOT NULL THEN 'RUNNING' ELSE n.status END AS status,
       n.skip_reason, n.attempt, n.failed_attempts, n.branch, n.parent_node_id, n.source_count, n.expanded_count, n.error, n.output_ref,
       extract(epoch FROM n.wake_at)::float8 AS wake_at,
       extract(epoch FROM coalesce(n.started_at, q.claimed_at))::float8 AS started_at,
       extract(epoch FROM n.finished_at)::float8 AS finished_at,
       q.queue, q.worker_id, q.progress, extract(epoch FROM q.dispatched_at)::float8 AS dispatched_at
FROM dag_node_states n
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id AND n.status = 'DISPATCHED'
WHERE n.job_id = :job_id AND n.skip_reason IS DISTINCT FROM 'superseded'
ORDER BY n.parent_node_id NULLS FIRST, n.fan_out_index, n.node_id

-- name: children
-- How many children of some fan-outs stand where. Their ids are a range.
SELECT n.parent_node_id AS fan,
       CASE WHEN n.status = 'DISPATCHED' AND q.worker_id IS NOT NULL THEN 'RUNNING' ELSE n.status END AS status,
       count(*) AS count, extract(epoch FROM min(coalesce(n.started_at, q.claimed_at)))::float8 AS first_started_at
FROM unnest(:fans::text[]) AS f (id)
JOIN dag_node_states n ON n.job_id = :job_id AND n.node_id >= f.id || '__' AND n.node_id < f.id || '_`'
                      AND n.parent_node_id = f.id AND n.skip_reason IS DISTINCT FROM 'superseded'
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id AND n.status = 'DISPATCHED'
GROUP BY 1, 2

-- name: failed_children
-- The first children of a fan-out that failed.
SELECT n.node_id, n.attempt, n.error
FROM dag_node_states n
WHERE n.job_id = :job_id AND n.node_id >= :fan || '__' AND n.node_id < :fan || '_`' AND n.status = 'FAILED'
  AND n.parent_node_id = :fan
ORDER BY n.fan_out_index
LIMIT :most

-- name: footprints
-- The children of a job's fan-outs with the items that they were made for, and the places in their outputs. A list is
-- taken apart once, not once a child. An output that lies in a blob is not looked at.
WITH items AS (
    SELECT f.node_id AS fan, i.number - 1 AS number, i.item
    FROM dag_node_states f
    CROSS JOIN LATERAL json_array_elements(f.source) WITH ORDINALITY AS i (item, number)
    WHERE f.job_id = :job_id AND f.source IS NOT NULL
)
SELECT n.node_id, i.fan, i.number, n.attempt, n.error,
       CASE WHEN n.status = 'DISPATCHED' AND q.worker_id IS NOT NULL THEN 'RUNNING' ELSE n.status END AS status,
       json_build_object('footprint', i.item -> 'footprint', 'bbox', i.item -> 'bbox', 'geometry', i.item -> 'geometry')
           AS item,
       json_build_object('bbox', n.output -> 'bbox', 'item', json_build_object('bbox', n.output #> '{item,bbox}')) AS output
FROM items i
JOIN dag_node_states n ON n.job_id = :job_id AND n.parent_node_id = i.fan AND n.fan_out_index = i.number
                      AND n.skip_reason IS DISTINCT FROM 'superseded'
LEFT JOIN dag_task_queue q ON q.task_id = n.task_id AND n.status = 'DISPATCHED'
WHERE json_typeof(i.item) = 'object' OR n.output -> 'bbox' IS NOT NULL OR n.output #> '{item,bbox}' IS NOT NULL
ORDER BY i.fan, i.number

-- name: attempts
-- How many attempts of a job are over.
SELECT count(*) AS count FROM dag_task_attempts WHERE job_id = :job_id

-- name: child_jobs
-- The jobs that were started for nodes of a job.
SELECT id, parent_node_id, status FROM dag_jobs WHERE parent_job_id = :job_id ORDER BY id

-- name: questions
-- What the waiting nodes of a job wait for, and since when.
SELECT DISTINCT ON (e.node_id) e.node_id, e.type, extract(epoch FROM e.at)::float8 AS at, e.data
FROM dag_job_events e
WHERE e.job_id = :job_id AND e.type IN ('ApprovalRequested', 'NodeWaiting') AND e.node_id = ANY(:node_ids::text[])
ORDER BY e.node_id, e.seq DESC

-- name: waiting_tasks
-- The tasks of a job that no worker holds, by queue; and how many live workers serve that queue. An array of ids leaves
-- one way only, the primary key: a join was once done the wrong way round, at 10 s for 10,000 tasks.
SELECT t.queue, t.count, t.oldest_seconds, w.workers, w.seats, w.busy
FROM (
    SELECT q.queue, count(*) AS count, extract(epoch FROM clock() - min(q.dispatched_at))::float8 AS oldest_seconds
    FROM dag_task_queue q
    WHERE q.task_id = ANY(array(SELECT n.task_id FROM dag_node_states n
                                WHERE n.job_id = :job_id AND n.status = 'DISPATCHED' AND n.task_id IS NOT NULL))
      AND coalesce(q.worker_id, 0) = 0 AND q.stop_requested_at IS NULL
    GROUP BY q.queue
) AS t
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, coalesce(sum(w.concurrency), 0) AS seats,
           coalesce(sum(least((w.counters ->> 'running')::integer, w.concurrency)), 0) AS busy
    FROM dag_workers w
    WHERE w.stopped_at IS NULL AND w.heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds)
      -- The queue of a `run` is taken over by those who serve all, once its own worker is dead.
      AND (t.queue = ANY(w.queues)
           OR (w.queues = '{}' AND (t.queue NOT LIKE 'run:%'
                                    OR NOT EXISTS (SELECT FROM dag_workers o
                                                   WHERE t.queue = ANY(o.queues) AND o.stopped_at IS NULL
                                                     AND o.heartbeat_at > clock()
                                                         - make_interval(secs => :worker_lease_seconds)))))
) AS w
ORDER BY t.queue

-- name: commands
-- What was asked of a job and nobody has taken up, the oldest first.
SELECT kind, sent_by, extract(epoch FROM clock() - created_at)::float8 AS seconds
FROM dag_inbox WHERE job_id = :job_id AND kind <> 'child_finished' ORDER BY id LIMIT 20

-- name: alive
-- How many orchestrators and workers live.
SELECT (SELECT count(*) FROM dag_orchestrators
        WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :lease_seconds)) AS orchestrators,
       (SELECT count(*) FROM dag_workers
        WHERE stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds)) AS workers

-- name: events
-- A piece of the trail. With `node_ids`: only of the job, of these nodes, and what went wrong anywhere.
SELECT seq, type, extract(epoch FROM at)::float8 AS at, by, node_id, attempt, data
FROM dag_job_events
WHERE job_id = :job_id AND seq > :after::integer
  AND (:node_ids::text[] IS NULL OR node_id IS NULL OR node_id = ANY(:node_ids::text[])
       OR type IN ('AttemptFailed', 'AttemptLost', 'NodeFailed', 'CommandRejected'))
ORDER BY seq
LIMIT :most

-- name: logs
-- A piece of the logs of a job's tasks, in the order in which it was written.
SELECT l.task_id, l.chunk, l.node_id, l.attempt, l.at AS moment, extract(epoch FROM l.at)::float8 AS at, l.text
FROM dag_task_logs l
WHERE l.job_id = :job_id AND (:node_id::text IS NULL OR l.node_id = :node_id::text)
  AND (:attempt::integer IS NULL OR l.attempt = :attempt::integer)
  AND (:moment::timestamptz IS NULL OR (l.at, l.task_id, l.chunk) > (:moment::timestamptz, :task_id::bigint, :chunk::integer))
ORDER BY l.at, l.task_id, l.chunk
LIMIT :most

-- name: workflows
-- The published workflows: the active version, and how many there are.
SELECT w.workflow_id, count(*) AS versions, max(w.version) AS newest,
       max(w.version) FILTER (WHERE w.is_active) AS active,
       extract(epoch FROM clock() - max(w.created_at))::float8 AS age_seconds,
       (SELECT g.definition ->> 'name' FROM dag_graphs g
        WHERE g.content_hash = (array_agg(w.content_hash ORDER BY w.is_active DESC, w.version DESC))[1]) AS name
FROM dag_workflows w
GROUP BY w.workflow_id
ORDER BY w.workflow_id

-- name: versions
-- The versions of a workflow.
SELECT version, content_hash, is_active, extract(epoch FROM created_at)::float8 AS created_at,
       extract(epoch FROM clock() - created_at)::float8 AS age_seconds
FROM dag_workflows WHERE workflow_id = :workflow_id ORDER BY version
