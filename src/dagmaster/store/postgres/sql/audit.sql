-- What is promised of a database, asked of its rows alone. Each query gives the rows that break its sentence: the job,
-- the node where there is one, and what is wrong. A sound database gives none, at any moment: all are asked of one
-- snapshot. Nothing here is shared with the engine, so that a mistake there cannot hide here.

-- name: trail_has_no_gaps
-- The events of a job are numbered from 1 to its event_seq, and none is missing.
SELECT j.id AS job_id, NULL::text AS node_id,
       format('has %s events from %s to %s, and its event_seq is %s', e.told, e.first, e.last, j.event_seq) AS says
FROM dag_jobs j
CROSS JOIN LATERAL (
    SELECT count(*) AS told, min(seq) AS first, max(seq) AS last FROM dag_job_events WHERE job_id = j.id
) e
WHERE (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
  AND (e.told <> j.event_seq OR e.first IS DISTINCT FROM 1 OR e.last <> j.event_seq)
LIMIT :most

-- name: trail_is_in_order
-- A trail begins with JobSubmitted; a claim comes before all else, JobStarted before any node; after JobFinished only a new run goes on.
WITH told AS (
    SELECT e.job_id, e.node_id, e.seq, e.type,
           count(*) FILTER (WHERE e.type = 'JobClaimed') OVER before AS claims,
           count(*) FILTER (WHERE e.type = 'JobStarted') OVER before AS starts,
           coalesce(max(e.seq) FILTER (WHERE e.type = 'JobFinished') OVER before, 0) AS finished,
           coalesce(max(e.seq) FILTER (WHERE e.type = 'JobResumed') OVER before, 0) AS resumed
    FROM dag_job_events e
    WHERE :job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[])
    WINDOW before AS (PARTITION BY e.job_id ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT job_id, node_id, format('tells %s as event %s, where it cannot be', type, seq) AS says
FROM told
WHERE (type = 'JobSubmitted') <> (seq = 1)
   OR (claims = 0 AND type NOT IN ('JobSubmitted', 'JobClaimed'))
   OR (starts > 0 AND type = 'JobStarted') OR (starts = 0 AND type = 'JobFinished')
   OR (starts = 0 AND node_id IS NOT NULL AND type NOT IN ('CommandRejected', 'StaleReportIgnored'))
   OR (finished > resumed AND type NOT IN ('JobClaimed', 'JobResumed', 'CommandRejected', 'StaleReportIgnored'))
LIMIT :most

-- name: only_the_owner_writes
-- What an orchestrator told, it told while it was the last to have claimed the job; and the epochs of claims grow.
WITH told AS (
    SELECT e.job_id, e.node_id, e.seq, e.type, e.by, (e.data ->> 'epoch')::integer AS epoch,
           count(*) FILTER (WHERE e.type = 'JobClaimed') OVER (PARTITION BY e.job_id ORDER BY e.seq) AS term
    FROM dag_job_events e
    WHERE e.by LIKE 'orchestrator %' AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
      -- These are by whoever asked: the owner of a parent job, or a person, who may have any name.
      AND e.type NOT IN ('JobSubmitted', 'CancelRequested', 'CommandRejected', 'StaleReportIgnored', 'SignalReceived',
                         'JobResumed', 'Approved', 'Rejected', 'NodesAdded')
),
claims AS (
    SELECT job_id, term, by, seq, epoch, lag(epoch, 1, 0) OVER (PARTITION BY job_id ORDER BY seq) AS epoch_before
    FROM told WHERE type = 'JobClaimed'
),
wrong AS (
    SELECT t.job_id, t.node_id,
           format('event %s (%s) is by %s, and %s had claimed the job', t.seq, t.type, t.by, c.by) AS says
    FROM told t JOIN claims c ON c.job_id = t.job_id AND c.term = t.term
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
SELECT job_id, node_id, says FROM wrong LIMIT :most

-- name: states_are_explained
-- The last that the trail tells of a node is how the node stands, and what it tells of has a row.
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
       format('is %s in attempt %s, and the last that is told of it is %s%s', coalesce(n.status, 'without a row'),
              coalesce(n.attempt, 0), coalesce(l.type, 'nothing'), ' in attempt ' || l.attempt) AS says
FROM nodes n
FULL JOIN last l USING (job_id, node_id)
LEFT JOIN resumed r USING (job_id)
WHERE (CASE
           WHEN n.status IS NULL THEN false
           WHEN n.skip_reason = 'superseded' THEN r.seq IS NOT NULL
           -- No attempt at a node made a result that is reused, however many there were before.
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
           -- READY: it rests between attempts. PENDING, or READY without that: nothing was told since the run began.
           WHEN n.status = 'READY' AND l.type = 'AttemptFailed' THEN l.attempt = n.attempt
           ELSE l.type IS NULL OR r.seq > l.seq
       END) IS NOT TRUE
LIMIT :most

-- name: nodes_complete_once
-- In one run of a job a node completes once, and no two nodes have the same place in the order of finishing.
WITH told AS (
    SELECT e.job_id, e.node_id, e.type,
           count(*) FILTER (WHERE e.type = 'JobResumed') OVER (PARTITION BY e.job_id ORDER BY e.seq) + 1 AS run
    FROM dag_job_events e
    WHERE e.type IN ('NodeCompleted', 'JobResumed') AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
),
wrong AS (
    SELECT job_id, node_id, format('completed %s times in run %s', count(*), run) AS says
    FROM told WHERE type = 'NodeCompleted' GROUP BY job_id, node_id, run HAVING count(*) > 1
    UNION ALL
    SELECT job_id, min(node_id), format('finished as number %s, as %s others did', finished_seq, count(*) - 1)
    FROM dag_node_states n
    WHERE finished_seq IS NOT NULL AND (:job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[]))
    GROUP BY job_id, finished_seq HAVING count(*) > 1
)
SELECT job_id, node_id, says FROM wrong LIMIT :most

-- name: outputs_are_of_the_completed
-- Only a node that completed has an output; one that failed says why, and one that completed has no error.
SELECT n.job_id, n.node_id,
       format('is %s with %s output and %s error', n.status,
              CASE WHEN n.output IS NULL AND n.output_ref IS NULL THEN 'no' ELSE 'an' END,
              CASE WHEN n.error IS NULL THEN 'no' ELSE 'an' END) AS says
FROM dag_node_states n
WHERE (:job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[]))
  AND ((n.status = 'COMPLETED') <> (n.output IS NOT NULL OR n.output_ref IS NOT NULL)
       OR (n.status = 'FAILED' AND n.error IS NULL) OR (n.status IN ('COMPLETED', 'PENDING') AND n.error IS NOT NULL))
LIMIT :most

-- name: tasks_are_in_one_place
-- Each dispatch that was told is in one place: in a queue, reported, or over. And what is there was dispatched.
WITH places AS (
    SELECT job_id, node_id, attempt, 'queued' AS place FROM dag_task_queue
    UNION ALL SELECT job_id, node_id, attempt, 'reported' FROM dag_task_results
    UNION ALL SELECT job_id, node_id, attempt, 'over' FROM dag_task_attempts
),
found AS (
    SELECT job_id, node_id, attempt, count(*) AS times, string_agg(place, ' and ' ORDER BY place) AS places
    FROM places p WHERE :job_ids::bigint[] IS NULL OR p.job_id = ANY(:job_ids::bigint[])
    GROUP BY job_id, node_id, attempt
),
told AS (
    SELECT e.job_id, e.node_id, e.attempt, count(*) AS times, max(e.seq) AS seq, max(e.at) AS at
    FROM dag_job_events e
    WHERE e.type = 'NodeDispatched' AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
    GROUP BY e.job_id, e.node_id, e.attempt
)
SELECT job_id, node_id,
       format('attempt %s was dispatched %s times, and is %s', attempt, coalesce(t.times, 0),
              coalesce(f.places, 'nowhere')) AS says
FROM told t
FULL JOIN found f USING (job_id, node_id, attempt)
WHERE (t.times IS DISTINCT FROM 1 OR f.times IS DISTINCT FROM 1)
  -- One whose params could not be worked out ended in the turn that dispatched it, and never was a task.
  AND NOT (f.times IS NULL AND t.times = 1
           AND EXISTS (SELECT FROM dag_job_events e
                       WHERE e.job_id = t.job_id AND e.node_id = t.node_id AND e.seq > t.seq AND e.at = t.at
                         AND (e.type = 'NodeCancelled'
                              OR (e.type = 'NodeFailed' AND e.data -> 'error' ->> 'kind' = 'expression'))))
LIMIT :most

-- name: attempts_are_numbered
-- The attempts at a node are numbered from 1 to its attempt, and none is missing.
SELECT n.job_id, n.node_id,
       format('is in attempt %s, and was dispatched %s times, lastly in attempt %s', n.attempt, d.times, d.last) AS says
FROM dag_node_states n
JOIN (SELECT e.job_id, e.node_id, count(DISTINCT e.attempt) AS times, max(e.attempt) AS last
      FROM dag_job_events e
      WHERE e.type = 'NodeDispatched' AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
      GROUP BY e.job_id, e.node_id) d ON d.job_id = n.job_id AND d.node_id = n.node_id
WHERE n.attempt <> d.times OR n.attempt <> d.last
LIMIT :most

-- name: attempts_are_told
-- How an attempt ended is told once, and as it was: completed, failed, lost or handed back.
WITH said AS (
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
    FROM said s
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
       format('attempt %s is %s, and is told %s times as %s', attempt, coalesce(a.status, 'not over'),
              coalesce(e.times, 0), coalesce(e.status, 'nothing')) AS says
FROM attempts a
FULL JOIN ends e USING (job_id, node_id, attempt)
LEFT JOIN ignored i USING (job_id, node_id, attempt)
WHERE CASE WHEN i.job_id IS NULL THEN e.times IS DISTINCT FROM 1 OR a.status IS DISTINCT FROM e.status
           ELSE e.times > 1 END
LIMIT :most

-- name: budgets_are_what_was_used
-- In its first run, a node has used as many tries as attempts failed, and as many losses as workers died.
SELECT n.job_id, n.node_id,
       format('has used %s tries and %s losses, and %s attempts failed and %s were lost', n.failed_attempts, n.lost_attempts,
              coalesce(a.failed, 0), coalesce(a.lost, 0)) AS says
FROM dag_node_states n
JOIN dag_jobs j ON j.id = n.job_id AND j.run = 1
LEFT JOIN (SELECT job_id, node_id, count(*) FILTER (WHERE status = 'FAILED') AS failed,
                  count(*) FILTER (WHERE status = 'LOST') AS lost
           FROM dag_task_attempts GROUP BY job_id, node_id) a ON a.job_id = n.job_id AND a.node_id = n.node_id
WHERE (:job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[]))
  AND (n.failed_attempts <> coalesce(a.failed, 0) OR n.lost_attempts <> coalesce(a.lost, 0))
LIMIT :most

-- name: what_is_queued_is_wanted
-- What is in a queue is the present attempt of a node that waits for it, with the node's task id, and held by somebody known.
SELECT q.job_id, q.node_id,
       format('task %s, attempt %s, is in queue %s, and the node is %s in attempt %s with task %s', q.task_id,
              q.attempt, q.queue, coalesce(n.status, 'not there'), coalesce(n.attempt, 0), n.task_id) AS says
FROM dag_task_queue q
LEFT JOIN dag_node_states n ON n.job_id = q.job_id AND n.node_id = q.node_id
LEFT JOIN dag_workers w ON w.worker_id = q.worker_id
WHERE (:job_ids::bigint[] IS NULL OR q.job_id = ANY(:job_ids::bigint[]))
  AND (n.status IS DISTINCT FROM 'DISPATCHED' OR n.attempt <> q.attempt OR n.task_id IS DISTINCT FROM q.task_id
       OR (q.worker_id IS NOT NULL AND w.worker_id IS NULL))
LIMIT :most

-- name: open_nodes_can_move
-- Every node that is under way in an open job has something that can move it, and every running job has such a node.
WITH open_jobs AS (
    SELECT id, status FROM dag_jobs j
    WHERE status IN ('PENDING', 'RUNNING') AND (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
),
nodes AS (
    SELECT n.job_id, n.node_id, n.parent_node_id, n.status, n.attempt, n.task_id, n.source_count, n.wake_at
    FROM open_jobs j JOIN dag_node_states n ON n.job_id = j.id
    WHERE n.status IN ('READY', 'DISPATCHED', 'RUNNING', 'WAITING')
),
-- What can move a node, beside its timer: its task, its child job, its own children, or somebody's answer.
movers AS (
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
wrong AS (
    SELECT n.job_id, n.node_id, format('is %s, and nothing can move it', n.status) AS says
    FROM nodes n
    LEFT JOIN movers m ON m.job_id = n.job_id AND m.node_id = n.node_id AND m.attempt = n.attempt
    WHERE n.wake_at IS NULL AND m.job_id IS NULL
    UNION ALL
    SELECT j.id, NULL, 'is RUNNING, and none of its nodes is under way'
    FROM open_jobs j
    WHERE j.status = 'RUNNING' AND j.id NOT IN (SELECT job_id FROM nodes)
)
SELECT job_id, node_id, says FROM wrong LIMIT :most

-- name: owners_can_be_replaced
-- Whoever owns a job or holds a task lives, or will be found dead: nobody is looked for who is unknown or long buried.
WITH wrong AS (
    SELECT j.id AS job_id, NULL::text AS node_id,
           format('is owned by %s, who %s', j.owner_id,
                  CASE WHEN o.owner_id IS NULL THEN 'is unknown' ELSE 'was buried at ' || o.stopped_at END) AS says
    FROM dag_jobs j
    LEFT JOIN dag_orchestrators o ON o.owner_id = j.owner_id
    WHERE j.owner_id IS NOT NULL AND (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
      AND (o.owner_id IS NULL OR o.stopped_at <= clock() - interval '1 hour')
    UNION ALL
    SELECT q.job_id, q.node_id, format('is held by worker %s, who was buried at %s', q.worker_id, w.stopped_at)
    FROM dag_task_queue q
    JOIN dag_workers w ON w.worker_id = q.worker_id
    WHERE w.stopped_at <= clock() - make_interval(secs => 5 * :worker_lease_seconds)
      AND (:job_ids::bigint[] IS NULL OR q.job_id = ANY(:job_ids::bigint[]))
)
SELECT job_id, node_id, says FROM wrong LIMIT :most

-- name: over_means_over
-- A job that is over has no open node, and nothing of it is queued or reported; it ended as its trail tells.
WITH jobs AS (
    SELECT j.id, j.status, j.run, j.error IS NOT NULL AS has_error, j.cancel_requested_at,
           j.result IS NOT NULL OR j.result_ref IS NOT NULL AS has_result,
           j.finished_at IS NOT NULL AS has_end, j.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AS is_over
    FROM dag_jobs j WHERE :job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[])
),
ends AS (
    SELECT j.id, (SELECT e.data ->> 'status' FROM dag_job_events e
                  WHERE e.job_id = j.id AND e.type = 'JobFinished'
                    AND NOT EXISTS (SELECT FROM dag_job_events r
                                    WHERE r.job_id = j.id AND r.type = 'JobResumed' AND r.seq > e.seq)
                  ORDER BY e.seq DESC LIMIT 1) AS told,
           1 + (SELECT count(*) FROM dag_job_events r WHERE r.job_id = j.id AND r.type = 'JobResumed') AS runs
    FROM jobs j
),
wrong AS (
    SELECT j.id AS job_id, n.node_id, format('is %s, and the job is %s', n.status, j.status) AS says
    FROM jobs j JOIN dag_node_states n ON n.job_id = j.id
    WHERE j.is_over AND n.status NOT IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')
    UNION ALL
    SELECT j.id, q.node_id, format('task %s is in a queue, and the job is %s', q.task_id, j.status)
    FROM jobs j JOIN dag_task_queue q ON q.job_id = j.id WHERE j.is_over
    UNION ALL
    SELECT j.id, r.node_id, format('task %s is reported, and the job is %s', r.task_id, j.status)
    FROM jobs j JOIN dag_task_results r ON r.job_id = j.id WHERE j.is_over
    UNION ALL
    SELECT j.id, NULL, format('is %s, and the last that is told of its end is %s', j.status, coalesce(e.told, 'nothing'))
    FROM jobs j JOIN ends e ON e.id = j.id
    WHERE e.told IS DISTINCT FROM CASE WHEN j.is_over THEN j.status END
    UNION ALL
    SELECT j.id, NULL, format('is in run %s, and %s runs are told', j.run, e.runs)
    FROM jobs j JOIN ends e ON e.id = j.id WHERE j.run <> e.runs
    UNION ALL
    SELECT j.id, NULL, format('is %s with %s result, %s error and %s end', j.status,
                              CASE WHEN j.has_result THEN 'a' ELSE 'no' END, CASE WHEN j.has_error THEN 'an' ELSE 'no' END,
                              CASE WHEN j.has_end THEN 'an' ELSE 'no' END)
    FROM jobs j
    WHERE j.has_end <> j.is_over OR (j.has_result AND j.status <> 'COMPLETED') OR j.has_error <> (j.status = 'FAILED')
       OR (j.status = 'CANCELLED' AND j.cancel_requested_at IS NULL)
)
SELECT job_id, node_id, says FROM wrong LIMIT :most

-- name: fan_outs_have_their_children
-- A fan-out has the children 0 to expanded_count - 1, each once; it made what is told, and is COMPLETED with all of them.
WITH fans AS (
    SELECT n.job_id, n.node_id, n.status, n.source_count, n.expanded_count
    FROM dag_node_states n
    WHERE n.source_count IS NOT NULL AND (:job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[]))
),
counted AS (
    SELECT c.job_id, c.parent_node_id AS node_id,
           count(*) FILTER (WHERE c.fan_out_index < f.expanded_count AND c.skip_reason IS DISTINCT FROM 'superseded')
               AS live,
           count(DISTINCT c.fan_out_index) FILTER (WHERE c.fan_out_index BETWEEN 0 AND f.expanded_count - 1) AS places,
           count(*) FILTER (WHERE c.fan_out_index >= f.expanded_count AND c.skip_reason IS DISTINCT FROM 'superseded')
               AS beyond,
           count(*) FILTER (WHERE c.node_id <> c.parent_node_id || '__' || c.fan_out_index) AS misnamed,
           count(*) FILTER (WHERE c.status NOT IN ('COMPLETED', 'FAILED') AND c.fan_out_index < f.expanded_count)
               AS undone
    FROM dag_node_states c
    JOIN fans f ON f.job_id = c.job_id AND f.node_id = c.parent_node_id
    GROUP BY c.job_id, c.parent_node_id
),
told AS (
    SELECT DISTINCT ON (e.job_id, e.node_id) e.job_id, e.node_id, (e.data ->> 'total')::integer AS total,
           (e.data ->> 'first')::integer + (e.data ->> 'count')::integer AS made
    FROM dag_job_events e
    WHERE e.type = 'NodeExpanded' AND (:job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[]))
    ORDER BY e.job_id, e.node_id, e.seq DESC
)
SELECT f.job_id, f.node_id,
       format('made %s of %s children: %s are there, %s are told, %s have another name', f.expanded_count,
              f.source_count, coalesce(c.live, 0), t.made, coalesce(c.misnamed, 0)) AS says
FROM fans f
LEFT JOIN counted c ON c.job_id = f.job_id AND c.node_id = f.node_id
LEFT JOIN told t ON t.job_id = f.job_id AND t.node_id = f.node_id
WHERE f.expanded_count > f.source_count OR coalesce(c.live, 0) <> f.expanded_count
   OR coalesce(c.places, 0) <> f.expanded_count OR c.beyond > 0 OR c.misnamed > 0
   OR t.made IS DISTINCT FROM f.expanded_count OR t.total IS DISTINCT FROM f.source_count
   OR (f.status = 'COMPLETED' AND (f.expanded_count <> f.source_count OR c.undone > 0))
LIMIT :most

-- name: child_jobs_are_wanted
-- A job that was started for a node of another is the only one of that attempt, and the other's trail tells of it.
SELECT c.id AS job_id, c.parent_node_id AS node_id,
       format('was started for attempt %s of this node of job %s, whose trail tells of %s', c.parent_attempt,
              c.parent_job_id, coalesce('job ' || (e.data ->> 'job_id'), 'no job')) AS says
FROM dag_jobs c
LEFT JOIN dag_job_events e ON e.job_id = c.parent_job_id AND e.node_id = c.parent_node_id
                          AND e.attempt = c.parent_attempt AND e.type = 'ChildJobStarted'
WHERE c.parent_job_id IS NOT NULL AND (:job_ids::bigint[] IS NULL OR c.id = ANY(:job_ids::bigint[]))
  AND (e.data ->> 'job_id') IS DISTINCT FROM c.id::text
LIMIT :most

-- name: keys_are_of_one_job
-- A submitter's idempotency key has one job.
SELECT min(j.id) AS job_id, NULL::text AS node_id,
       format('the key %s of %s has %s jobs', j.idempotency_key, coalesce(nullif(j.submitted_by, ''), 'somebody'),
              count(*)) AS says
FROM dag_jobs j
WHERE j.idempotency_key IS NOT NULL AND (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
GROUP BY j.submitted_by, j.idempotency_key
HAVING count(*) > 1
LIMIT :most

-- name: nothing_is_without_its_job
-- Every row of a job has that job, and every child of a fan-out has its fan-out.
WITH wrong AS (
    SELECT job_id, node_id, 'a node' AS what FROM dag_node_states
    UNION ALL SELECT job_id, node_id, 'an attempt' FROM dag_task_attempts
    UNION ALL SELECT job_id, node_id, 'a task' FROM dag_task_queue
    UNION ALL SELECT job_id, node_id, 'a report' FROM dag_task_results
    UNION ALL SELECT job_id, node_id, 'a checkpoint' FROM dag_checkpoints
    UNION ALL SELECT job_id, NULL, 'an event' FROM dag_job_events WHERE seq = 1
),
orphans AS (
    SELECT w.job_id, w.node_id, format('%s is there, and the job is not', w.what) AS says
    FROM wrong w LEFT JOIN dag_jobs j ON j.id = w.job_id
    WHERE j.id IS NULL
    UNION ALL
    SELECT c.job_id, c.node_id, format('is a child of %s, which is no fan-out', c.parent_node_id)
    FROM dag_node_states c
    LEFT JOIN dag_node_states p ON p.job_id = c.job_id AND p.node_id = c.parent_node_id
    WHERE c.parent_node_id IS NOT NULL
      -- One whose list is to be worked out anew has no count; its children of before are superseded.
      AND (p.node_id IS NULL OR (p.source_count IS NULL AND c.skip_reason IS DISTINCT FROM 'superseded'))
)
SELECT job_id, node_id, says FROM orphans
WHERE :job_ids::bigint[] IS NULL OR job_id = ANY(:job_ids::bigint[])
LIMIT :most

-- name: commands_are_answered
-- What was asked of a job is answered while somebody lives who can: nothing waits longer than a minute, or four leases.
SELECT i.job_id, NULL::text AS node_id,
       format('was asked to %s at %s, and nobody answered', i.kind, i.created_at) AS says
FROM dag_inbox i
JOIN dag_jobs j ON j.id = i.job_id
WHERE (:job_ids::bigint[] IS NULL OR i.job_id = ANY(:job_ids::bigint[]))
  AND i.created_at <= clock() - make_interval(secs => :stall_seconds)
  AND EXISTS (SELECT FROM dag_orchestrators o
              WHERE (o.owner_id = j.owner_id OR (j.owner_id IS NULL AND j.queue IS NULL)) AND o.stopped_at IS NULL
                AND o.started_at <= clock() - make_interval(secs => :stall_seconds)
                AND o.heartbeat_at > clock() - make_interval(secs => :lease_seconds))
LIMIT :most

-- name: results_are_taken
-- What was reported is taken by the owner of the job while that one lives: none waits longer than a minute, or four leases.
SELECT r.job_id, r.node_id,
       format('attempt %s was reported as %s at %s, and orchestrator %s did not take it', r.attempt, r.status,
              r.reported_at, j.owner_id) AS says
FROM dag_task_results r
JOIN dag_jobs j ON j.id = r.job_id
JOIN dag_orchestrators o ON o.owner_id = j.owner_id
WHERE (:job_ids::bigint[] IS NULL OR r.job_id = ANY(:job_ids::bigint[]))
  AND r.reported_at <= clock() - make_interval(secs => :stall_seconds)
  AND o.stopped_at IS NULL AND o.started_at <= clock() - make_interval(secs => :stall_seconds)
  AND o.heartbeat_at > clock() - make_interval(secs => :lease_seconds)
LIMIT :most

-- name: jobs_are_claimed
-- An open job is owned while somebody lives who can own it: none waits longer than a minute, or four leases.
SELECT j.id AS job_id, NULL::text AS node_id,
       format('is %s since %s, and nobody owns it', j.status, j.created_at) AS says
FROM dag_jobs j
LEFT JOIN dag_orchestrators p ON p.owner_id = j.previous_owner_id
WHERE (:job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[]))
  AND j.owner_id IS NULL AND j.status IN ('PENDING', 'RUNNING')
  -- When it was let go of is told nowhere: not after its owner left, nor before the last that is told of it.
  AND (p.stopped_at > clock() - make_interval(secs => :stall_seconds)) IS NOT TRUE
  AND NOT EXISTS (SELECT FROM dag_job_events e
                  WHERE e.job_id = j.id AND e.seq = j.event_seq
                    AND e.at > clock() - make_interval(secs => :stall_seconds))
  -- The jobs of a `run` are its own affair, while it lives and a while after.
  AND NOT EXISTS (SELECT FROM dag_workers w
                  WHERE j.queue = ANY(w.queues)
                    AND coalesce(w.stopped_at, w.heartbeat_at) > clock() - make_interval(secs => :stall_seconds))
  AND EXISTS (SELECT FROM dag_orchestrators o
              WHERE o.stopped_at IS NULL AND o.started_at <= clock() - make_interval(secs => :stall_seconds)
                AND o.heartbeat_at > clock() - make_interval(secs => :lease_seconds)
                -- That of a `run` owns nothing else.
                AND NOT EXISTS (SELECT FROM dag_workers w
                                WHERE w.host = o.host AND w.pid = o.pid AND w.stopped_at IS NULL
                                  AND w.queues[1] LIKE 'run:%'))
LIMIT :most

-- name: extent
-- How much there is to look at.
SELECT (SELECT count(*) FROM dag_jobs j WHERE :job_ids::bigint[] IS NULL OR j.id = ANY(:job_ids::bigint[])) AS jobs,
       (SELECT count(*) FROM dag_node_states n WHERE :job_ids::bigint[] IS NULL OR n.job_id = ANY(:job_ids::bigint[])) AS nodes,
       (SELECT count(*) FROM dag_job_events e WHERE :job_ids::bigint[] IS NULL OR e.job_id = ANY(:job_ids::bigint[])) AS events
