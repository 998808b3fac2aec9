-- The invariants of a database, checked on its rows alone. The comment of a query is its rule; its rows are the
-- violations: the job, the node if there is one, and a message. A consistent database has none at any moment. Nothing
-- here is shared with the engine, so that a bug there cannot hide here.
--
-- Each query checks the jobs whose ids are in a range; all queries about a range read one snapshot. The ranges of an audit
-- cover all numbers, so that rows without a job are also in one. Tables are read by the range of job ids, an index range,
-- and joined by hashing (see audit.py). The queue and the results have no index of jobs: they are read only for a range
-- with open jobs. Each of their rows, of whatever job, is checked by audit_queue.sql and audit_results.sql.

-- name: batch
-- The last id of a batch that begins at an id: before the first job that is one too many, or has too many events.
SELECT min(id) - 1 AS last
FROM (SELECT id, row_number() OVER (ORDER BY id) AS number, sum(event_seq) OVER (ORDER BY id) AS events
      FROM (SELECT id, event_seq FROM dag_jobs WHERE id >= :low ORDER BY id LIMIT :jobs::bigint + 1) AS n) AS j
WHERE number > :jobs::bigint OR (number > 1 AND events > :events::bigint)

-- name: events_have_no_gaps
-- The events of a job are numbered from 1 to its event_seq, and none is missing.
SELECT j.id AS job_id, NULL::text AS node_id,
       format('has %s events from %s to %s, and its event_seq is %s', coalesce(e.total, 0), e.first, e.last,
              j.event_seq) AS message
FROM dag_jobs j
LEFT JOIN (SELECT job_id, count(*) AS total, min(seq) AS first, max(seq) AS last FROM dag_job_events
           WHERE job_id BETWEEN :low AND :high GROUP BY job_id) e ON e.job_id = j.id
WHERE j.id BETWEEN :low AND :high
  AND (e.total IS DISTINCT FROM j.event_seq OR e.first IS DISTINCT FROM 1 OR e.last <> j.event_seq)
LIMIT :limit

-- name: events_are_in_order
-- The first event is JobSubmitted; a claim precedes all others, JobStarted precedes events of nodes; only a new run continues after JobFinished.
WITH events AS (
    SELECT e.job_id, e.node_id, e.seq, e.type,
           count(*) FILTER (WHERE e.type = 'JobClaimed') OVER before AS claims,
           count(*) FILTER (WHERE e.type = 'JobStarted') OVER before AS starts,
           coalesce(max(e.seq) FILTER (WHERE e.type = 'JobFinished') OVER before, 0) AS finished,
           coalesce(max(e.seq) FILTER (WHERE e.type = 'JobResumed') OVER before, 0) AS resumed
    FROM dag_job_events e
    WHERE e.job_id BETWEEN :low AND :high
    WINDOW before AS (PARTITION BY e.job_id ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT job_id, node_id, format('has %s as event %s, out of order', type, seq) AS message
FROM events
WHERE (type = 'JobSubmitted') <> (seq = 1)
   OR (claims = 0 AND type NOT IN ('JobSubmitted', 'JobClaimed'))
   OR (starts > 0 AND type = 'JobStarted') OR (starts = 0 AND type = 'JobFinished')
   OR (starts = 0 AND node_id IS NOT NULL AND type NOT IN ('CommandRejected', 'StaleReportIgnored'))
   OR (finished > resumed AND type NOT IN ('JobClaimed', 'JobResumed', 'CommandRejected', 'StaleReportIgnored'))
LIMIT :limit

-- name: only_the_owner_writes
-- An orchestrator appends events only while it is the last that claimed the job, and the epochs of claims increase.
WITH events AS (
    SELECT e.job_id, e.node_id, e.seq, e.type, e.by, (e.data ->> 'epoch')::integer AS epoch,
           count(*) FILTER (WHERE e.type = 'JobClaimed') OVER (PARTITION BY e.job_id ORDER BY e.seq) AS term
    FROM dag_job_events e
    WHERE e.by LIKE 'orchestrator %' AND e.job_id BETWEEN :low AND :high
      -- These name the sender of a command: the owner of a parent job, or a person, who may have any name.
      AND e.type NOT IN ('JobSubmitted', 'CancelRequested', 'NodeCancelRequested', 'CommandRejected', 'StaleReportIgnored',
                         'SignalReceived', 'JobResumed', 'Approved', 'Rejected', 'NodesAdded')
),
claims AS (
    SELECT job_id, term, by, seq, epoch, lag(epoch, 1, 0) OVER (PARTITION BY job_id ORDER BY seq) AS epoch_before
    FROM events WHERE type = 'JobClaimed'
),
violations AS (
    SELECT t.job_id, t.node_id,
           format('event %s (%s) is by %s, and %s had claimed the job', t.seq, t.type, t.by, c.by) AS message
    FROM events t JOIN claims c ON c.job_id = t.job_id AND c.term = t.term
    WHERE t.by <> c.by
    UNION ALL
    SELECT c.job_id, NULL, format('was claimed in epoch %s after epoch %s', c.epoch, c.epoch_before)
    FROM claims c WHERE c.epoch <= c.epoch_before
    UNION ALL
    SELECT j.id, NULL, format('is in epoch %s, and was claimed in epoch %s', j.owner_epoch, c.epoch)
    FROM dag_jobs j
    JOIN (SELECT job_id, max(epoch) AS epoch FROM claims GROUP BY job_id) c ON c.job_id = j.id
    WHERE j.id BETWEEN :low AND :high AND j.owner_epoch < c.epoch
)
SELECT job_id, node_id, message FROM violations LIMIT :limit

-- name: node_states_match_events
-- The status of a node follows from its last event, and every node with events has a row.
WITH last AS (
    SELECT DISTINCT ON (e.job_id, e.node_id) e.job_id, e.node_id, e.seq, e.type, e.attempt,
           e.data -> 'reused_from' IS NOT NULL AS is_reused
    FROM dag_job_events e
    WHERE e.type IN ('NodeDispatched', 'NodeCompleted', 'NodeFailed', 'NodeSkipped', 'NodeCancelled', 'NodeWaiting',
                     'NodeExpanded', 'ApprovalRequested', 'ChildJobStarted', 'AttemptFailed', 'AttemptLost',
                     'AttemptReleased')
      AND e.job_id BETWEEN :low AND :high
    ORDER BY e.job_id, e.node_id, e.seq DESC
),
resumed AS (
    SELECT job_id, max(seq) AS seq FROM dag_job_events
    WHERE type = 'JobResumed' AND job_id BETWEEN :low AND :high GROUP BY job_id
),
nodes AS (
    SELECT job_id, node_id, status, skip_reason, attempt, source_count
    FROM dag_node_states n WHERE n.job_id BETWEEN :low AND :high
)
SELECT job_id, node_id,
       format('is %s in attempt %s, and its last event is %s%s', coalesce(n.status, 'without a row'),
              coalesce(n.attempt, 0), coalesce(l.type, 'missing'), ' in attempt ' || l.attempt) AS message
FROM nodes n
FULL JOIN last l USING (job_id, node_id)
LEFT JOIN resumed r USING (job_id)
WHERE (CASE
           WHEN n.status IS NULL THEN false
           WHEN n.skip_reason = 'superseded' THEN r.seq IS NOT NULL
           -- A reused result has no attempt, however many the node had before.
           WHEN n.status = 'COMPLETED' AND l.is_reused THEN l.type = 'NodeCompleted' AND l.attempt IS NULL
           WHEN n.status = 'COMPLETED' THEN l.type = 'NodeCompleted' AND coalesce(l.attempt, 0) = n.attempt
           WHEN n.status = 'FAILED' THEN l.type = 'NodeFailed'
           WHEN n.status = 'SKIPPED' THEN l.type = 'NodeSkipped'
           WHEN n.status = 'CANCELLED' THEN l.type = 'NodeCancelled'
           WHEN n.status = 'DISPATCHED' THEN l.type = 'NodeDispatched' AND l.attempt = n.attempt
           WHEN n.status = 'RUNNING' AND n.source_count IS NULL
               THEN l.type = 'ChildJobStarted' AND l.attempt = n.attempt
           WHEN n.status = 'RUNNING' THEN l.type = 'NodeExpanded' OR r.seq > coalesce(l.seq, 0)
           WHEN n.status = 'WAITING' THEN l.type IN ('NodeWaiting', 'ApprovalRequested')
           -- READY after AttemptFailed waits for its retry. PENDING, or READY otherwise: no event since the run started.
           WHEN n.status = 'READY' AND l.type = 'AttemptFailed' THEN l.attempt = n.attempt
           ELSE l.type IS NULL OR r.seq > l.seq
       END) IS NOT TRUE
LIMIT :limit

-- name: nodes_complete_once
-- In one run of a job a node completes once, and no two nodes have the same finished_seq.
WITH events AS (
    SELECT e.job_id, e.node_id, e.type,
           count(*) FILTER (WHERE e.type = 'JobResumed') OVER (PARTITION BY e.job_id ORDER BY e.seq) + 1 AS run
    FROM dag_job_events e
    WHERE e.type IN ('NodeCompleted', 'JobResumed') AND e.job_id BETWEEN :low AND :high
),
violations AS (
    SELECT job_id, node_id, format('completed %s times in run %s', count(*), run) AS message
    FROM events WHERE type = 'NodeCompleted' GROUP BY job_id, node_id, run HAVING count(*) > 1
    UNION ALL
    SELECT job_id, min(node_id), format('finished as number %s, as %s others did', finished_seq, count(*) - 1)
    FROM dag_node_states n
    WHERE finished_seq IS NOT NULL AND n.job_id BETWEEN :low AND :high
    GROUP BY job_id, finished_seq HAVING count(*) > 1
)
SELECT job_id, node_id, message FROM violations LIMIT :limit

-- name: only_completed_nodes_have_outputs
-- Only a completed node has an output; a failed one has an error, and a completed one has none.
SELECT n.job_id, n.node_id,
       format('is %s with %s output and %s error', n.status,
              CASE WHEN n.output IS NULL AND n.output_ref IS NULL THEN 'no' ELSE 'an' END,
              CASE WHEN n.error IS NULL THEN 'no' ELSE 'an' END) AS message
FROM dag_node_states n
WHERE n.job_id BETWEEN :low AND :high
  AND ((n.status = 'COMPLETED') <> (n.output IS NOT NULL OR n.output_ref IS NOT NULL)
       OR (n.status = 'FAILED' AND n.error IS NULL) OR (n.status IN ('COMPLETED', 'PENDING') AND n.error IS NOT NULL))
LIMIT :limit

-- name: tasks_are_stored_once
-- Each dispatched task is stored in one table: the queue, the results or the attempts. Each stored task was dispatched.
WITH open_jobs AS (
    SELECT id FROM dag_jobs WHERE id BETWEEN :low AND :high AND status IN ('PENDING', 'RUNNING')
),
places AS (
    SELECT job_id, node_id, attempt, 'queued' AS place FROM dag_task_queue
    WHERE job_id IN (SELECT id FROM open_jobs) AND :has_open_jobs::boolean
    UNION ALL
    SELECT job_id, node_id, attempt, 'reported' FROM dag_task_results
    WHERE job_id IN (SELECT id FROM open_jobs) AND :has_open_jobs::boolean
    UNION ALL
    SELECT job_id, node_id, attempt, 'finished' FROM dag_task_attempts
    WHERE job_id BETWEEN :low AND :high
),
stored AS (
    SELECT job_id, node_id, attempt, count(*) AS times, string_agg(place, ' and ' ORDER BY place) AS places
    FROM places GROUP BY job_id, node_id, attempt
),
dispatched AS (
    SELECT e.job_id, e.node_id, e.attempt, count(*) AS times, max(e.seq) AS seq, max(e.at) AS at
    FROM dag_job_events e
    WHERE e.type = 'NodeDispatched' AND e.job_id BETWEEN :low AND :high
    GROUP BY e.job_id, e.node_id, e.attempt
)
SELECT job_id, node_id,
       format('attempt %s was dispatched %s times, and is %s', attempt, coalesce(d.times, 0),
              coalesce(s.places, 'nowhere')) AS message
FROM dispatched d
FULL JOIN stored s USING (job_id, node_id, attempt)
WHERE (d.times IS DISTINCT FROM 1 OR s.times IS DISTINCT FROM 1)
  -- One whose params could not be evaluated finished in the turn that dispatched it, and never was a task. It may have
  -- been cancelled in the same turn.
  AND NOT (s.times IS NULL AND d.times = 1
           AND EXISTS (SELECT FROM dag_job_events e
                       WHERE e.job_id = d.job_id AND e.node_id = d.node_id AND e.seq > d.seq AND e.at = d.at
                         AND (e.type = 'NodeCancelled'
                              OR (e.type = 'NodeFailed' AND e.data -> 'error' ->> 'kind' IN ('expression', 'cancelled')))))
LIMIT :limit

-- name: attempts_have_no_gaps
-- The attempts at a node are numbered from 1 to its attempt, and none is missing.
SELECT n.job_id, n.node_id,
       format('is in attempt %s, and was dispatched %s times, the last time in attempt %s', n.attempt, d.times, d.last) AS message
FROM dag_node_states n
JOIN (SELECT e.job_id, e.node_id, count(DISTINCT e.attempt) AS times, max(e.attempt) AS last
      FROM dag_job_events e
      WHERE e.type = 'NodeDispatched' AND e.job_id BETWEEN :low AND :high
      GROUP BY e.job_id, e.node_id) d ON d.job_id = n.job_id AND d.node_id = n.node_id
WHERE n.job_id BETWEEN :low AND :high AND (n.attempt <> d.times OR n.attempt <> d.last)
LIMIT :limit

-- name: attempts_match_events
-- The end of an attempt has one event, with the same outcome: completed, failed, lost or released.
WITH outcomes AS (
    SELECT e.job_id, e.node_id, e.attempt,
           CASE e.type WHEN 'NodeCompleted' THEN 'COMPLETED' WHEN 'AttemptFailed' THEN 'FAILED'
                       WHEN 'AttemptLost' THEN 'LOST' WHEN 'AttemptReleased' THEN 'RELEASED' END AS status
    FROM dag_job_events e
    WHERE e.type IN ('NodeCompleted', 'AttemptFailed', 'AttemptLost', 'AttemptReleased') AND e.attempt IS NOT NULL
      AND e.job_id BETWEEN :low AND :high
),
-- A child job is also an attempt, but not a task.
ends AS (
    SELECT s.job_id, s.node_id, s.attempt, min(s.status) AS status, count(*) AS times
    FROM outcomes s
    JOIN dag_job_events d ON d.job_id = s.job_id AND d.node_id = s.node_id AND d.attempt = s.attempt
                         AND d.type = 'NodeDispatched' AND d.job_id BETWEEN :low AND :high
    GROUP BY s.job_id, s.node_id, s.attempt
),
ignored AS (
    SELECT DISTINCT job_id, node_id, attempt FROM dag_job_events
    WHERE type = 'StaleReportIgnored' AND job_id BETWEEN :low AND :high
),
attempts AS (
    SELECT job_id, node_id, attempt, status FROM dag_task_attempts a
    WHERE a.job_id BETWEEN :low AND :high
)
SELECT job_id, node_id,
       format('attempt %s is %s, and has %s events as %s', attempt, coalesce(a.status, 'not finished'),
              coalesce(e.times, 0), coalesce(e.status, 'finished')) AS message
FROM attempts a
FULL JOIN ends e USING (job_id, node_id, attempt)
LEFT JOIN ignored i USING (job_id, node_id, attempt)
WHERE CASE WHEN i.job_id IS NULL THEN e.times IS DISTINCT FROM 1 OR a.status IS DISTINCT FROM e.status
           ELSE e.times > 1 END
LIMIT :limit

-- name: attempt_counters_match_attempts
-- In the first run of a job, the counters of a node are the numbers of its failed attempts, and of those lost with a
-- worker that held no other task.
SELECT n.job_id, n.node_id,
       format('counts %s failed and %s lost attempts, and has %s and %s', n.failed_attempts, n.lost_attempts,
              coalesce(a.failed, 0), coalesce(a.lost, 0)) AS message
FROM dag_node_states n
JOIN dag_jobs j ON j.id = n.job_id AND j.run = 1 AND j.id BETWEEN :low AND :high
LEFT JOIN (SELECT job_id, node_id, count(*) FILTER (WHERE status = 'FAILED') AS failed,
                  count(*) FILTER (WHERE status = 'LOST' AND coalesce((error ->> 'alone')::boolean, true)) AS lost,
                  count(*) FILTER (WHERE status = 'LOST') AS all_lost
           FROM dag_task_attempts WHERE job_id BETWEEN :low AND :high
           GROUP BY job_id, node_id) a ON a.job_id = n.job_id AND a.node_id = n.node_id
WHERE n.job_id BETWEEN :low AND :high
  AND (n.failed_attempts <> coalesce(a.failed, 0) OR n.lost_attempts < coalesce(a.lost, 0)
       -- After ten losses next to other tasks, further ones are also charged.
       OR n.lost_attempts > coalesce(a.lost, 0) + greatest(coalesce(a.all_lost - a.lost, 0) - 10, 0))
LIMIT :limit

-- name: open_nodes_can_progress
-- Every active node of an open job has something that can make it progress, and every running job has such a node.
WITH open_jobs AS (
    SELECT id, status FROM dag_jobs j
    WHERE status IN ('PENDING', 'RUNNING') AND j.id BETWEEN :low AND :high
),
nodes AS (
    SELECT n.job_id, n.node_id, n.parent_node_id, n.status, n.attempt, n.task_id, n.source_count, n.wake_at
    FROM open_jobs j JOIN dag_node_states n ON n.job_id = j.id
    WHERE n.job_id BETWEEN :low AND :high AND n.status IN ('READY', 'DISPATCHED', 'RUNNING', 'WAITING')
),
-- What can make a node progress, besides its timer: its task, its child job, its own children, an approval or a signal.
triggers AS (
    SELECT job_id, node_id, attempt FROM dag_task_queue WHERE task_id = ANY(ARRAY(SELECT task_id FROM nodes))
    UNION SELECT job_id, node_id, attempt FROM dag_task_results
          WHERE task_id IN (SELECT task_id FROM nodes) AND :has_open_jobs::boolean
    UNION SELECT parent_job_id, parent_node_id, parent_attempt FROM dag_jobs
          WHERE parent_job_id BETWEEN :low AND :high AND status IN ('PENDING', 'RUNNING')
    UNION SELECT job_id, body ->> 'node', (body ->> 'attempt')::integer FROM dag_inbox
          WHERE job_id BETWEEN :low AND :high AND kind = 'child_finished'
    UNION SELECT job_id, parent_node_id, 0 FROM nodes WHERE parent_node_id IS NOT NULL
    UNION SELECT e.job_id, e.node_id, 0 FROM dag_job_events e
          WHERE e.job_id BETWEEN :low AND :high AND e.job_id IN (SELECT id FROM open_jobs)
            AND (e.type = 'ApprovalRequested' OR (e.type = 'NodeWaiting' AND e.data ->> 'signal' <> ''))
),
violations AS (
    SELECT n.job_id, n.node_id, format('is %s, and nothing can make it progress', n.status) AS message
    FROM nodes n
    LEFT JOIN triggers t ON t.job_id = n.job_id AND t.node_id = n.node_id AND t.attempt = n.attempt
    WHERE n.wake_at IS NULL AND t.job_id IS NULL
    UNION ALL
    SELECT j.id, NULL, 'is RUNNING, and none of its nodes is active'
    FROM open_jobs j
    WHERE j.status = 'RUNNING' AND j.id NOT IN (SELECT job_id FROM nodes)
)
SELECT job_id, node_id, message FROM violations LIMIT :limit

-- name: claims_can_expire
-- The owner of a job and the worker of a task are alive or will be expired: none is unregistered or stopped long ago.
SELECT j.id AS job_id, NULL::text AS node_id,
       format('is owned by orchestrator %s, which %s', j.owner_id,
              CASE WHEN o.owner_id IS NULL THEN 'is not registered' ELSE 'stopped at ' || o.stopped_at END) AS message
FROM dag_jobs j
LEFT JOIN dag_orchestrators o ON o.owner_id = j.owner_id
WHERE j.id BETWEEN :low AND :high AND j.owner_id IS NOT NULL
  AND (o.owner_id IS NULL OR o.stopped_at <= clock() - interval '1 hour')
LIMIT :limit

-- name: finished_jobs_are_consistent
-- A finished job has no open node, no queued task and no pending report, and its status is that of its last JobFinished.
WITH jobs AS (
    SELECT j.id, j.status, j.run, j.error IS NOT NULL AS has_error, j.cancel_requested_at,
           j.result IS NOT NULL OR j.result_ref IS NOT NULL AS has_result,
           j.finished_at IS NOT NULL AS has_finished_at, j.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AS is_finished
    FROM dag_jobs j WHERE j.id BETWEEN :low AND :high
),
events AS (
    SELECT job_id, max(seq) FILTER (WHERE type = 'JobResumed') AS resumed, max(seq) FILTER (WHERE type = 'JobFinished') AS finished,
           (array_agg(data ->> 'status' ORDER BY seq DESC) FILTER (WHERE type = 'JobFinished'))[1] AS last_status,
           count(*) FILTER (WHERE type = 'JobResumed') AS resumes
    FROM dag_job_events
    WHERE job_id BETWEEN :low AND :high AND type IN ('JobFinished', 'JobResumed')
    GROUP BY job_id
),
ends AS (
    SELECT j.id, CASE WHEN e.finished > coalesce(e.resumed, 0) THEN e.last_status END AS status,
           1 + coalesce(e.resumes, 0) AS runs
    FROM jobs j LEFT JOIN events e ON e.job_id = j.id
),
violations AS (
    SELECT j.id AS job_id, n.node_id, format('is %s, and the job is %s', n.status, j.status) AS message
    FROM jobs j JOIN dag_node_states n ON n.job_id = j.id
    WHERE n.job_id BETWEEN :low AND :high
      AND j.is_finished AND n.status NOT IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')
    UNION ALL
    SELECT j.id, NULL, format('is %s, and its last JobFinished has %s', j.status, coalesce(e.status, 'no status'))
    FROM jobs j JOIN ends e ON e.id = j.id
    WHERE e.status IS DISTINCT FROM CASE WHEN j.is_finished THEN j.status END
    UNION ALL
    SELECT j.id, NULL, format('is in run %s, and its events have %s runs', j.run, e.runs)
    FROM jobs j JOIN ends e ON e.id = j.id WHERE j.run <> e.runs
    UNION ALL
    SELECT j.id, NULL, format('is %s with %s result, %s error and %s finished_at', j.status,
                              CASE WHEN j.has_result THEN 'a' ELSE 'no' END, CASE WHEN j.has_error THEN 'an' ELSE 'no' END,
                              CASE WHEN j.has_finished_at THEN 'a' ELSE 'no' END)
    FROM jobs j
    WHERE j.has_finished_at <> j.is_finished OR (j.has_result AND j.status <> 'COMPLETED') OR j.has_error <> (j.status = 'FAILED')
       OR (j.status = 'CANCELLED' AND j.cancel_requested_at IS NULL)
)
SELECT job_id, node_id, message FROM violations LIMIT :limit

-- name: fan_outs_have_their_children
-- A fan-out has the children 0 to expanded_count - 1, each once; its events agree, and it is COMPLETED only with all of them.
WITH fan_outs AS (
    SELECT n.job_id, n.node_id, n.status, n.source_count, n.expanded_count
    FROM dag_node_states n
    WHERE n.source_count IS NOT NULL AND n.job_id BETWEEN :low AND :high
),
counted AS (
    SELECT c.job_id, c.parent_node_id AS node_id,
           count(*) FILTER (WHERE c.fan_out_index < f.expanded_count AND c.skip_reason IS DISTINCT FROM 'superseded')
               AS live,
           count(DISTINCT c.fan_out_index) FILTER (WHERE c.fan_out_index BETWEEN 0 AND f.expanded_count - 1) AS indexes,
           count(*) FILTER (WHERE c.fan_out_index >= f.expanded_count AND c.skip_reason IS DISTINCT FROM 'superseded')
               AS beyond,
           count(*) FILTER (WHERE c.node_id <> c.parent_node_id || '__' || c.fan_out_index) AS misnamed,
           count(*) FILTER (WHERE c.status NOT IN ('COMPLETED', 'FAILED') AND c.fan_out_index < f.expanded_count)
               AS open
    FROM dag_node_states c
    JOIN fan_outs f ON f.job_id = c.job_id AND f.node_id = c.parent_node_id
    WHERE c.job_id BETWEEN :low AND :high
    GROUP BY c.job_id, c.parent_node_id
),
expansions AS (
    SELECT DISTINCT ON (e.job_id, e.node_id) e.job_id, e.node_id, (e.data ->> 'total')::integer AS total,
           (e.data ->> 'first')::integer + (e.data ->> 'count')::integer AS expanded
    FROM dag_job_events e
    WHERE e.type = 'NodeExpanded' AND e.job_id BETWEEN :low AND :high
    ORDER BY e.job_id, e.node_id, e.seq DESC
)
SELECT f.job_id, f.node_id,
       format('expanded %s of %s children: %s rows, %s in its events, %s misnamed', f.expanded_count,
              f.source_count, coalesce(c.live, 0), x.expanded, coalesce(c.misnamed, 0)) AS message
FROM fan_outs f
LEFT JOIN counted c ON c.job_id = f.job_id AND c.node_id = f.node_id
LEFT JOIN expansions x ON x.job_id = f.job_id AND x.node_id = f.node_id
WHERE f.expanded_count > f.source_count OR coalesce(c.live, 0) <> f.expanded_count
   OR coalesce(c.indexes, 0) <> f.expanded_count OR c.beyond > 0 OR c.misnamed > 0
   OR x.expanded IS DISTINCT FROM f.expanded_count OR x.total IS DISTINCT FROM f.source_count
   OR (f.status = 'COMPLETED' AND (f.expanded_count <> f.source_count OR c.open > 0))
LIMIT :limit

-- name: child_jobs_match_events
-- A child job is the only one of its parent's attempt, and the parent has an event of it.
WITH children AS (
    SELECT id, parent_job_id, parent_node_id, parent_attempt FROM dag_jobs
    WHERE id BETWEEN :low AND :high AND parent_job_id IS NOT NULL
),
events AS (
    SELECT job_id, node_id, attempt, data ->> 'job_id' AS child_id FROM dag_job_events
    WHERE job_id = ANY(ARRAY(SELECT DISTINCT parent_job_id FROM children)) AND type = 'ChildJobStarted'
)
SELECT c.id AS job_id, c.parent_node_id AS node_id,
       format('was started for attempt %s of this node of job %s, whose event names %s', c.parent_attempt,
              c.parent_job_id, coalesce('job ' || e.child_id, 'no job')) AS message
FROM children c
LEFT JOIN events e ON e.job_id = c.parent_job_id AND e.node_id = c.parent_node_id AND e.attempt = c.parent_attempt
WHERE e.child_id IS DISTINCT FROM c.id::text
LIMIT :limit

-- name: idempotency_keys_are_unique
-- A submitter's idempotency key has one job.
SELECT k.id AS job_id, NULL::text AS node_id,
       format('the key %s of %s has %s jobs', k.idempotency_key, coalesce(nullif(k.submitted_by, ''), 'an unnamed submitter'),
              k.jobs) AS message
FROM (SELECT j.id, j.idempotency_key, j.submitted_by,
             (SELECT count(*) FROM dag_jobs o
              WHERE o.idempotency_key = j.idempotency_key AND o.submitted_by = j.submitted_by) AS jobs
      FROM dag_jobs j
      WHERE j.id BETWEEN :low AND :high AND j.idempotency_key IS NOT NULL) AS k
WHERE k.jobs > 1
LIMIT :limit

-- name: no_orphaned_rows
-- Every row of a job has its job, and every child of a fan-out has its fan-out.
WITH jobs AS (
    SELECT id FROM dag_jobs WHERE id BETWEEN :low AND :high
),
nodes AS (
    SELECT job_id, node_id, parent_node_id, source_count, skip_reason FROM dag_node_states
    WHERE job_id BETWEEN :low AND :high
),
job_rows AS (
    SELECT job_id, node_id, 'a node' AS kind FROM nodes
    UNION ALL
    SELECT job_id, node_id, 'an attempt' FROM dag_task_attempts WHERE job_id BETWEEN :low AND :high
    UNION ALL
    SELECT job_id, node_id, 'a checkpoint' FROM dag_checkpoints WHERE job_id BETWEEN :low AND :high
    UNION ALL
    SELECT DISTINCT job_id, NULL, 'an event' FROM dag_job_events WHERE job_id BETWEEN :low AND :high
),
orphans AS (
    SELECT r.job_id, r.node_id, format('%s exists, and the job does not', r.kind) AS message
    FROM job_rows r LEFT JOIN jobs j ON j.id = r.job_id
    WHERE j.id IS NULL
    UNION ALL
    SELECT c.job_id, c.node_id, format('is a child of %s, which is no fan-out', c.parent_node_id)
    FROM nodes c
    LEFT JOIN nodes p ON p.job_id = c.job_id AND p.node_id = c.parent_node_id
    WHERE c.parent_node_id IS NOT NULL
      -- One whose items are evaluated again has no count; its earlier children are superseded.
      AND (p.node_id IS NULL OR (p.source_count IS NULL AND c.skip_reason IS DISTINCT FROM 'superseded'))
)
SELECT job_id, node_id, message FROM orphans LIMIT :limit

-- name: commands_are_processed
-- A command is processed while an orchestrator that can own its job is alive: none waits longer than a minute, or four leases.
SELECT i.job_id, NULL::text AS node_id,
       format('has a command (%s) since %s that no orchestrator processed', i.kind, i.created_at) AS message
FROM dag_inbox i
JOIN dag_jobs j ON j.id = i.job_id
WHERE i.job_id BETWEEN :low AND :high
  AND i.created_at <= clock() - make_interval(secs => :stall_seconds)
  AND EXISTS (SELECT FROM dag_orchestrators o
              WHERE (o.owner_id = j.owner_id OR (j.owner_id IS NULL AND j.queue IS NULL)) AND o.stopped_at IS NULL
                AND o.started_at <= clock() - make_interval(secs => :stall_seconds)
                AND o.heartbeat_at > clock() - make_interval(secs => :lease_seconds))
LIMIT :limit

-- name: jobs_are_claimed
-- An open job is owned while an orchestrator that can own it is alive: none waits longer than a minute, or four leases.
SELECT j.id AS job_id, NULL::text AS node_id,
       format('is %s since %s, and no orchestrator owns it', j.status, j.created_at) AS message
FROM dag_jobs j
LEFT JOIN dag_orchestrators p ON p.owner_id = j.previous_owner_id
WHERE j.id BETWEEN :low AND :high
  AND j.owner_id IS NULL AND j.status IN ('PENDING', 'RUNNING')
  -- When it was released is not stored: it was not after its owner stopped, nor before its last event.
  AND (p.stopped_at > clock() - make_interval(secs => :stall_seconds)) IS NOT TRUE
  AND ((SELECT e.at FROM dag_job_events e WHERE e.job_id = j.id AND e.seq = j.event_seq)
       > clock() - make_interval(secs => :stall_seconds)) IS NOT TRUE
  -- Only a `run` itself claims its jobs, while it is alive and a while after.
  AND NOT EXISTS (SELECT FROM dag_workers w
                  WHERE j.queue = ANY(w.queues)
                    AND coalesce(w.stopped_at, w.heartbeat_at) > clock() - make_interval(secs => :stall_seconds))
  AND EXISTS (SELECT FROM dag_orchestrators o
              WHERE o.stopped_at IS NULL AND o.started_at <= clock() - make_interval(secs => :stall_seconds)
                AND o.heartbeat_at > clock() - make_interval(secs => :lease_seconds)
                -- The orchestrator of a `run` owns nothing else.
                AND NOT EXISTS (SELECT FROM dag_workers w
                                WHERE w.host = o.host AND w.pid = o.pid AND w.stopped_at IS NULL
                                  AND w.queues[1] LIKE 'run:%'))
LIMIT :limit

-- name: extent
-- How many rows an audit reads, and whether one of the jobs is open.
SELECT j.jobs, j.has_open_jobs,
       (SELECT count(*) FROM dag_node_states WHERE job_id BETWEEN :low AND :high) AS nodes,
       (SELECT count(*) FROM dag_job_events WHERE job_id BETWEEN :low AND :high) AS events
FROM (SELECT count(*) AS jobs, coalesce(bool_or(status IN ('PENDING', 'RUNNING')), false) AS has_open_jobs
      FROM dag_jobs WHERE id BETWEEN :low AND :high) AS j

-- name: total
-- How many jobs there are.
SELECT count(*) AS jobs FROM dag_jobs
