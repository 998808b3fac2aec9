-- The invariants of a database, checked on its rows alone. The comment of a query is its rule; its rows are the
-- violations: the job, the node if there is one, and a message. A consistent database has none at any moment: all
-- queries read one snapshot. Nothing here is shared with the engine, so that a bug there cannot hide here.

-- name: events_have_no_gaps
-- The events of a job are numbered from 1 to its event_seq, and none is missing.
SELECT j.id AS job_id, NULL::text AS node_id,
       format('has %s events from %s to %s, and its event_seq is %s', e.total, e.first, e.last, j.event_seq) AS message
FROM dag_jobs j
CROSS JOIN LATERAL (
    SELECT count(*) AS total, min(seq) AS first, max(seq) AS last FROM dag_job_events WHERE job_id = j.id
) e
WHERE (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
  AND (e.total <> j.event_seq OR e.first IS DISTINCT FROM 1 OR e.last <> j.event_seq)
LIMIT :limit

-- name: events_are_in_order
-- The first event is JobSubmitted; a claim precedes all others, JobStarted those of nodes; only a new run continues after JobFinished.
WITH events AS (
    SELECT e.job_id, e.node_id, e.seq, e.type,
           count(*) FILTER (WHERE e.type = 'JobClaimed') OVER before AS claims,
           count(*) FILTER (WHERE e.type = 'JobStarted') OVER before AS starts,
           coalesce(max(e.seq) FILTER (WHERE e.type = 'JobFinished') OVER before, 0) AS finished,
           coalesce(max(e.seq) FILTER (WHERE e.type = 'JobResumed') OVER before, 0) AS resumed
    FROM dag_job_events e
    WHERE :job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[])
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
    WHERE e.by LIKE 'orchestrator %' AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
      -- These name the sender of a command: the owner of a parent job, or a person, who may have any name.
      AND e.type NOT IN ('JobSubmitted', 'CancelRequested', 'CommandRejected', 'StaleReportIgnored', 'SignalReceived',
                         'JobResumed', 'Approved', 'Rejected', 'NodesAdded')
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
    CROSS JOIN LATERAL (SELECT max(epoch) AS epoch FROM claims WHERE job_id = j.id) c
    WHERE j.owner_epoch < c.epoch
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
      AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
    ORDER BY e.job_id, e.node_id, e.seq DESC
),
resumed AS (
    SELECT job_id, max(seq) AS seq FROM dag_job_events WHERE type = 'JobResumed' GROUP BY job_id
),
nodes AS (
    SELECT job_id, node_id, status, skip_reason, attempt, source_count
    FROM dag_node_states n WHERE :job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[])
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
    WHERE e.type IN ('NodeCompleted', 'JobResumed') AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
),
violations AS (
    SELECT job_id, node_id, format('completed %s times in run %s', count(*), run) AS message
    FROM events WHERE type = 'NodeCompleted' GROUP BY job_id, node_id, run HAVING count(*) > 1
    UNION ALL
    SELECT job_id, min(node_id), format('finished as number %s, as %s others did', finished_seq, count(*) - 1)
    FROM dag_node_states n
    WHERE finished_seq IS NOT NULL AND (:job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[]))
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
WHERE (:job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[]))
  AND ((n.status = 'COMPLETED') <> (n.output IS NOT NULL OR n.output_ref IS NOT NULL)
       OR (n.status = 'FAILED' AND n.error IS NULL) OR (n.status IN ('COMPLETED', 'PENDING') AND n.error IS NOT NULL))
LIMIT :limit

-- name: tasks_are_stored_once
-- Each dispatched task is stored in one table: the queue, the results or the attempts. Each stored task was dispatched.
WITH places AS (
    SELECT job_id, node_id, attempt, 'queued' AS place FROM dag_task_queue
    UNION ALL SELECT job_id, node_id, attempt, 'reported' FROM dag_task_results
    UNION ALL SELECT job_id, node_id, attempt, 'finished' FROM dag_task_attempts
),
stored AS (
    SELECT job_id, node_id, attempt, count(*) AS times, string_agg(place, ' and ' ORDER BY place) AS places
    FROM places p WHERE :job_ids::bigint[] IS NULL OR p.job_id = ANY(:job_ids::bigint[])
    GROUP BY job_id, node_id, attempt
),
dispatched AS (
    SELECT e.job_id, e.node_id, e.attempt, count(*) AS times, max(e.seq) AS seq, max(e.at) AS at
    FROM dag_job_events e
    WHERE e.type = 'NodeDispatched' AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
    GROUP BY e.job_id, e.node_id, e.attempt
)
SELECT job_id, node_id,
       format('attempt %s was dispatched %s times, and is %s', attempt, coalesce(d.times, 0),
              coalesce(s.places, 'nowhere')) AS message
FROM dispatched d
FULL JOIN stored s USING (job_id, node_id, attempt)
WHERE (d.times IS DISTINCT FROM 1 OR s.times IS DISTINCT FROM 1)
  -- One whose params could not be evaluated finished in the turn that dispatched it, and never was a task.
  AND NOT (s.times IS NULL AND d.times = 1
           AND EXISTS (SELECT FROM dag_job_events e
                       WHERE e.job_id = d.job_id AND e.node_id = d.node_id AND e.seq > d.seq AND e.at = d.at
                         AND (e.type = 'NodeCancelled'
                              OR (e.type = 'NodeFailed' AND e.data -> 'error' ->> 'kind' = 'expression'))))
LIMIT :limit

-- name: attempts_have_no_gaps
-- The attempts at a node are numbered from 1 to its attempt, and none is missing.
SELECT n.job_id, n.node_id,
       format('is in attempt %s, and was dispatched %s times, the last time in attempt %s', n.attempt, d.times, d.last) AS message
FROM dag_node_states n
JOIN (SELECT e.job_id, e.node_id, count(DISTINCT e.attempt) AS times, max(e.attempt) AS last
      FROM dag_job_events e
      WHERE e.type = 'NodeDispatched' AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
      GROUP BY e.job_id, e.node_id) d ON d.job_id = n.job_id AND d.node_id = n.node_id
WHERE n.attempt <> d.times OR n.attempt <> d.last
LIMIT :limit

-- name: attempts_match_events
-- The end of an attempt has one event, with the same outcome: completed, failed, lost or released.
WITH outcomes AS (
    SELECT e.job_id, e.node_id, e.attempt,
           CASE e.type WHEN 'NodeCompleted' THEN 'COMPLETED' WHEN 'AttemptFailed' THEN 'FAILED'
                       WHEN 'AttemptLost' THEN 'LOST' WHEN 'AttemptReleased' THEN 'RELEASED' END AS status
    FROM dag_job_events e
    WHERE e.type IN ('NodeCompleted', 'AttemptFailed', 'AttemptLost', 'AttemptReleased') AND e.attempt IS NOT NULL
      AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
),
-- A child job is an attempt, too, but no task.
ends AS (
    SELECT s.job_id, s.node_id, s.attempt, min(s.status) AS status, count(*) AS times
    FROM outcomes s
    JOIN dag_job_events d ON d.job_id = s.job_id AND d.node_id = s.node_id AND d.attempt = s.attempt
                         AND d.type = 'NodeDispatched'
    GROUP BY s.job_id, s.node_id, s.attempt
),
ignored AS (
    SELECT DISTINCT job_id, node_id, attempt FROM dag_job_events WHERE type = 'StaleReportIgnored'
),
attempts AS (
    SELECT job_id, node_id, attempt, status FROM dag_task_attempts a
    WHERE :job_ids::bigint[] IS NULL OR a.job_id = ANY(:job_ids::bigint[])
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
JOIN dag_jobs j ON j.id = n.job_id AND j.run = 1
LEFT JOIN (SELECT job_id, node_id, count(*) FILTER (WHERE status = 'FAILED') AS failed,
                  count(*) FILTER (WHERE status = 'LOST' AND coalesce((error ->> 'alone')::boolean, true)) AS lost
           FROM dag_task_attempts GROUP BY job_id, node_id) a ON a.job_id = n.job_id AND a.node_id = n.node_id
WHERE (:job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[]))
  AND (n.failed_attempts <> coalesce(a.failed, 0) OR n.lost_attempts <> coalesce(a.lost, 0))
LIMIT :limit

-- name: queued_tasks_match_nodes
-- A queued task is the current attempt of a dispatched node, has the node's task id, and its worker is registered.
SELECT q.job_id, q.node_id,
       format('task %s, attempt %s, is in queue %s, and the node is %s in attempt %s with task %s', q.task_id,
              q.attempt, q.queue, coalesce(n.status, 'missing'), coalesce(n.attempt, 0), n.task_id) AS message
FROM dag_task_queue q
LEFT JOIN dag_node_states n ON n.job_id = q.job_id AND n.node_id = q.node_id
LEFT JOIN dag_workers w ON w.worker_id = q.worker_id
WHERE (:job_ids::bigint[] IS NULL OR q.job_id = ANY(:job_ids::bigint[]))
  AND (n.status IS DISTINCT FROM 'DISPATCHED' OR n.attempt <> q.attempt OR n.task_id IS DISTINCT FROM q.task_id
       OR (q.worker_id IS NOT NULL AND w.worker_id IS NULL))
LIMIT :limit

-- name: open_nodes_can_progress
-- Every active node of an open job has something that can make it progress, and every running job has such a node.
WITH open_jobs AS (
    SELECT id, status FROM dag_jobs j
    WHERE status IN ('PENDING', 'RUNNING') AND (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
),
nodes AS (
    SELECT n.job_id, n.node_id, n.parent_node_id, n.status, n.attempt, n.task_id, n.source_count, n.wake_at
    FROM open_jobs j JOIN dag_node_states n ON n.job_id = j.id
    WHERE n.status IN ('READY', 'DISPATCHED', 'RUNNING', 'WAITING')
),
-- What can make a node progress, besides its timer: its task, its child job, its own children, an approval or a signal.
triggers AS (
    SELECT job_id, node_id, attempt FROM dag_task_queue WHERE task_id IN (SELECT task_id FROM nodes)
    UNION SELECT job_id, node_id, attempt FROM dag_task_results WHERE task_id IN (SELECT task_id FROM nodes)
    UNION SELECT parent_job_id, parent_node_id, parent_attempt FROM dag_jobs
          WHERE parent_job_id IS NOT NULL AND status IN ('PENDING', 'RUNNING')
    UNION SELECT job_id, body ->> 'node', (body ->> 'attempt')::integer FROM dag_inbox WHERE kind = 'child_finished'
    UNION SELECT job_id, parent_node_id, 0 FROM nodes WHERE parent_node_id IS NOT NULL
    UNION SELECT e.job_id, e.node_id, 0 FROM dag_job_events e
          WHERE e.job_id IN (SELECT id FROM open_jobs)
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
WITH violations AS (
    SELECT j.id AS job_id, NULL::text AS node_id,
           format('is owned by orchestrator %s, which %s', j.owner_id,
                  CASE WHEN o.owner_id IS NULL THEN 'is not registered' ELSE 'stopped at ' || o.stopped_at END) AS message
    FROM dag_jobs j
    LEFT JOIN dag_orchestrators o ON o.owner_id = j.owner_id
    WHERE j.owner_id IS NOT NULL AND (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
      AND (o.owner_id IS NULL OR o.stopped_at <= clock() - interval '1 hour')
    UNION ALL
    SELECT q.job_id, q.node_id, format('is claimed by worker %s, which stopped at %s', q.worker_id, w.stopped_at)
    FROM dag_task_queue q
    JOIN dag_workers w ON w.worker_id = q.worker_id
    WHERE w.stopped_at <= clock() - make_interval(secs => 5 * :worker_lease_seconds)
      AND (:job_ids::bigint[] IS NULL OR q.job_id = ANY(:job_ids::bigint[]))
)
SELECT job_id, node_id, message FROM violations LIMIT :limit

-- name: finished_jobs_are_consistent
-- A finished job has no open node, no queued task and no pending report, and its status is that of its last JobFinished.
WITH jobs AS (
    SELECT j.id, j.status, j.run, j.error IS NOT NULL AS has_error, j.cancel_requested_at,
           j.result IS NOT NULL OR j.result_ref IS NOT NULL AS has_result,
           j.finished_at IS NOT NULL AS has_finished_at, j.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AS is_finished
    FROM dag_jobs j WHERE :job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[])
),
ends AS (
    SELECT j.id, (SELECT e.data ->> 'status' FROM dag_job_events e
                  WHERE e.job_id = j.id AND e.type = 'JobFinished'
                    AND NOT EXISTS (SELECT FROM dag_job_events r
                                    WHERE r.job_id = j.id AND r.type = 'JobResumed' AND r.seq > e.seq)
                  ORDER BY e.seq DESC LIMIT 1) AS status,
           1 + (SELECT count(*) FROM dag_job_events r WHERE r.job_id = j.id AND r.type = 'JobResumed') AS runs
    FROM jobs j
),
violations AS (
    SELECT j.id AS job_id, n.node_id, format('is %s, and the job is %s', n.status, j.status) AS message
    FROM jobs j JOIN dag_node_states n ON n.job_id = j.id
    WHERE j.is_finished AND n.status NOT IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')
    UNION ALL
    SELECT j.id, q.node_id, format('task %s is in a queue, and the job is %s', q.task_id, j.status)
    FROM jobs j JOIN dag_task_queue q ON q.job_id = j.id WHERE j.is_finished
    UNION ALL
    SELECT j.id, r.node_id, format('task %s is reported, and the job is %s', r.task_id, j.status)
    FROM jobs j JOIN dag_task_results r ON r.job_id = j.id WHERE j.is_finished
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
    WHERE n.source_count IS NOT NULL AND (:job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[]))
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
    GROUP BY c.job_id, c.parent_node_id
),
expansions AS (
    SELECT DISTINCT ON (e.job_id, e.node_id) e.job_id, e.node_id, (e.data ->> 'total')::integer AS total,
           (e.data ->> 'first')::integer + (e.data ->> 'count')::integer AS expanded
    FROM dag_job_events e
    WHERE e.type = 'NodeExpanded' AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
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
SELECT c.id AS job_id, c.parent_node_id AS node_id,
       format('was started for attempt %s of this node of job %s, whose event names %s', c.parent_attempt,
              c.parent_job_id, coalesce('job ' || (e.data ->> 'job_id'), 'no job')) AS message
FROM dag_jobs c
LEFT JOIN dag_job_events e ON e.job_id = c.parent_job_id AND e.node_id = c.parent_node_id
                          AND e.attempt = c.parent_attempt AND e.type = 'ChildJobStarted'
WHERE c.parent_job_id IS NOT NULL AND (:job_ids::bigint[] IS NULL OR c.id = ANY(:job_ids::bigint[]))
  AND (e.data ->> 'job_id') IS DISTINCT FROM c.id::text
LIMIT :limit

-- name: idempotency_keys_are_unique
-- A submitter's idempotency key has one job.
SELECT min(j.id) AS job_id, NULL::text AS node_id,
       format('the key %s of %s has %s jobs', j.idempotency_key, coalesce(nullif(j.submitted_by, ''), 'an unnamed submitter'),
              count(*)) AS message
FROM dag_jobs j
WHERE j.idempotency_key IS NOT NULL AND (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
GROUP BY j.submitted_by, j.idempotency_key
HAVING count(*) > 1
LIMIT :limit

-- name: no_orphaned_rows
-- Every row of a job has its job, and every child of a fan-out has its fan-out.
WITH job_rows AS (
    SELECT job_id, node_id, 'a node' AS kind FROM dag_node_states
    UNION ALL SELECT job_id, node_id, 'an attempt' FROM dag_task_attempts
    UNION ALL SELECT job_id, node_id, 'a task' FROM dag_task_queue
    UNION ALL SELECT job_id, node_id, 'a report' FROM dag_task_results
    UNION ALL SELECT job_id, node_id, 'a checkpoint' FROM dag_checkpoints
    UNION ALL SELECT job_id, NULL, 'an event' FROM dag_job_events WHERE seq = 1
),
orphans AS (
    SELECT r.job_id, r.node_id, format('%s exists, and the job does not', r.kind) AS message
    FROM job_rows r LEFT JOIN dag_jobs j ON j.id = r.job_id
    WHERE j.id IS NULL
    UNION ALL
    SELECT c.job_id, c.node_id, format('is a child of %s, which is no fan-out', c.parent_node_id)
    FROM dag_node_states c
    LEFT JOIN dag_node_states p ON p.job_id = c.job_id AND p.node_id = c.parent_node_id
    WHERE c.parent_node_id IS NOT NULL
      -- One whose items are evaluated again has no count; its earlier children are superseded.
      AND (p.node_id IS NULL OR (p.source_count IS NULL AND c.skip_reason IS DISTINCT FROM 'superseded'))
)
SELECT job_id, node_id, message FROM orphans
WHERE :job_ids::bigint[] IS NULL OR job_id = ANY(:job_ids::bigint[])
LIMIT :limit

-- name: commands_are_processed
-- A command is processed while an orchestrator that can own its job is alive: none waits longer than a minute, or four leases.
SELECT i.job_id, NULL::text AS node_id,
       format('has a command (%s) since %s that no orchestrator processed', i.kind, i.created_at) AS message
FROM dag_inbox i
JOIN dag_jobs j ON j.id = i.job_id
WHERE (:job_ids::bigint[] IS NULL OR i.job_id = ANY(:job_ids::bigint[]))
  AND i.created_at <= clock() - make_interval(secs => :stall_seconds)
  AND EXISTS (SELECT FROM dag_orchestrators o
              WHERE (o.owner_id = j.owner_id OR (j.owner_id IS NULL AND j.queue IS NULL)) AND o.stopped_at IS NULL
                AND o.started_at <= clock() - make_interval(secs => :stall_seconds)
                AND o.heartbeat_at > clock() - make_interval(secs => :lease_seconds))
LIMIT :limit

-- name: results_are_processed
-- A report is processed while the owner of its job is alive: none waits longer than a minute, or four leases.
SELECT r.job_id, r.node_id,
       format('attempt %s was reported as %s at %s, and orchestrator %s did not process it', r.attempt, r.status,
              r.reported_at, j.owner_id) AS message
FROM dag_task_results r
JOIN dag_jobs j ON j.id = r.job_id
JOIN dag_orchestrators o ON o.owner_id = j.owner_id
WHERE (:job_ids::bigint[] IS NULL OR r.job_id = ANY(:job_ids::bigint[]))
  AND r.reported_at <= clock() - make_interval(secs => :stall_seconds)
  AND o.stopped_at IS NULL AND o.started_at <= clock() - make_interval(secs => :stall_seconds)
  AND o.heartbeat_at > clock() - make_interval(secs => :lease_seconds)
LIMIT :limit

-- name: jobs_are_claimed
-- An open job is owned while an orchestrator that can own it is alive: none waits longer than a minute, or four leases.
SELECT j.id AS job_id, NULL::text AS node_id,
       format('is %s since %s, and no orchestrator owns it', j.status, j.created_at) AS message
FROM dag_jobs j
LEFT JOIN dag_orchestrators p ON p.owner_id = j.previous_owner_id
WHERE (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
  AND j.owner_id IS NULL AND j.status IN ('PENDING', 'RUNNING')
  -- When it was released is not stored: it was not after its owner stopped, nor before its last event.
  AND (p.stopped_at > clock() - make_interval(secs => :stall_seconds)) IS NOT TRUE
  AND NOT EXISTS (SELECT FROM dag_job_events e
                  WHERE e.job_id = j.id AND e.seq = j.event_seq
                    AND e.at > clock() - make_interval(secs => :stall_seconds))
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
-- How many rows an audit reads.
SELECT (SELECT count(*) FROM dag_jobs j WHERE :job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[])) AS jobs,
       (SELECT count(*) FROM dag_node_states n WHERE :job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[])) AS nodes,
       (SELECT count(*) FROM dag_job_events e WHERE :job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[])) AS events
