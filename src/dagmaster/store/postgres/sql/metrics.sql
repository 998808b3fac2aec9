-- Roll-ups of finished jobs, and what is read from them.

-- name: roll_up
-- Count a batch of finished jobs. One process counts at a time: concurrent upserts of the same sums could deadlock.
WITH lease AS (
    INSERT INTO dag_leases (name, holder, expires_at)
    SELECT 'metrics', :holder, clock() + make_interval(secs => :lease_seconds)
    -- Nothing is written while there is nothing to count.
    WHERE EXISTS (SELECT FROM dag_metric_pending)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
    WHERE dag_leases.holder = excluded.holder OR dag_leases.expires_at <= clock()
    RETURNING name
),
taken AS (
    DELETE FROM dag_metric_pending
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM dag_metric_pending LIMIT :limit)) AND EXISTS (SELECT FROM lease)
    RETURNING job_id, run
),
-- A job that was resumed before it was counted is queued again when it finishes: the row of its earlier run counts
-- nothing. Hidden jobs do not count.
jobs AS MATERIALIZED (
    SELECT j.id, j.workflow_id, j.tenant, j.run, j.status, j.error, j.finished_at, r.started_at,
           date_bin('6 hours', j.finished_at, '2000-01-01 00:00:00+00') AS period,
           greatest(extract(epoch FROM j.finished_at - r.started_at)::float8, 0) AS seconds,
           dag_duration_bin(extract(epoch FROM j.finished_at - r.started_at)::float8) AS bin
    FROM (SELECT DISTINCT job_id, run FROM taken) t
    CROSS JOIN LATERAL (SELECT * FROM dag_jobs j WHERE j.id = t.job_id LIMIT 1) j
    CROSS JOIN LATERAL (SELECT CASE WHEN j.run = 1 THEN j.started_at ELSE dag_resumed_at(j.id) END AS started_at) r
    WHERE j.finished_at IS NOT NULL AND j.run = t.run AND NOT j.is_hidden
),
job_sums AS (
    INSERT INTO dag_metric_jobs (period, workflow_id, status, bin, tenant, count, seconds)
    SELECT period, workflow_id, status, bin, tenant, count(*), sum(seconds) FROM jobs GROUP BY 1, 2, 3, 4, 5
    ON CONFLICT (period, workflow_id, status, bin, tenant) DO UPDATE
    SET count = dag_metric_jobs.count + excluded.count, seconds = dag_metric_jobs.seconds + excluded.seconds
),
node_sums AS (
    INSERT INTO dag_metric_nodes (workflow_id, period, node_id, status, bin, tenant, count, seconds, retries)
    SELECT j.workflow_id, j.period, split_part(n.node_id, '__', 1), n.status,
           dag_duration_bin(extract(epoch FROM n.finished_at - n.started_at)::float8), j.tenant, count(*),
           sum(greatest(extract(epoch FROM n.finished_at - n.started_at)::float8, 0)), sum(greatest(n.attempt - 1, 0))
    FROM jobs j
    CROSS JOIN LATERAL (SELECT * FROM dag_node_states n
                        WHERE n.job_id = j.id AND n.source_count IS NULL AND n.finished_seq IS NOT NULL
                          -- A later run counts only what it executed.
                          AND (j.run = 1 OR n.finished_at >= j.started_at)) n
    GROUP BY 1, 2, 3, 4, 5, 6
    ON CONFLICT (workflow_id, period, node_id, status, bin, tenant) DO UPDATE
    SET count = dag_metric_nodes.count + excluded.count, seconds = dag_metric_nodes.seconds + excluded.seconds,
        retries = dag_metric_nodes.retries + excluded.retries
),
failure_sums AS (
    INSERT INTO dag_metric_failures (period, workflow_id, node_id, message, tenant, count, job_id, last_at)
    SELECT period, workflow_id, split_part(coalesce(error ->> 'node', ''), '__', 1),
           dag_failure_message(coalesce(error -> 'cause' ->> 'message', error ->> 'message', '')), tenant, count(*),
           max(id), max(finished_at)
    FROM jobs WHERE status = 'FAILED' GROUP BY 1, 2, 3, 4, 5
    ON CONFLICT (period, workflow_id, node_id, message, tenant) DO UPDATE
    SET count = dag_metric_failures.count + excluded.count, job_id = excluded.job_id,
        last_at = greatest(dag_metric_failures.last_at, excluded.last_at)
),
minute_sums AS (
    INSERT INTO dag_metric_throughput (minute, tenant, completed, failed, cancelled, seconds)
    SELECT date_trunc('minute', finished_at), tenant, count(*) FILTER (WHERE status = 'COMPLETED'),
           count(*) FILTER (WHERE status = 'FAILED'), count(*) FILTER (WHERE status = 'CANCELLED'),
           coalesce(sum(seconds) FILTER (WHERE status = 'COMPLETED'), 0)
    FROM jobs GROUP BY 1, 2
    ON CONFLICT (minute, tenant) DO UPDATE
    SET completed = dag_metric_throughput.completed + excluded.completed,
        failed = dag_metric_throughput.failed + excluded.failed,
        cancelled = dag_metric_throughput.cancelled + excluded.cancelled,
        seconds = dag_metric_throughput.seconds + excluded.seconds
)
SELECT count(*) AS taken FROM taken

-- name: prune
-- Delete the sums of a batch of old periods. Under the lease: a rebuild may write the same rows. Sums of nodes and failures are
-- of periods and workflows that have sums of jobs, by which an index finds them.
WITH first AS (
    SELECT date_bin('6 hours', clock() - make_interval(secs => :retention::float8), '2000-01-01 00:00:00+00') AS period
),
old AS MATERIALIZED (
    SELECT DISTINCT j.period, j.workflow_id FROM dag_metric_jobs j
    WHERE j.period < (SELECT f.period FROM first f) ORDER BY j.period, j.workflow_id LIMIT :limit
),
lease AS (
    INSERT INTO dag_leases (name, holder, expires_at)
    SELECT 'metrics', :holder, clock() + make_interval(secs => :lease_seconds)
    WHERE EXISTS (SELECT FROM old)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
    WHERE dag_leases.holder = excluded.holder OR dag_leases.expires_at <= clock()
    RETURNING name
),
jobs AS (
    DELETE FROM dag_metric_jobs d USING old o
    WHERE d.period = o.period AND d.workflow_id = o.workflow_id AND EXISTS (SELECT FROM lease)
),
nodes AS (
    DELETE FROM dag_metric_nodes d USING old o
    WHERE d.period = o.period AND d.workflow_id = o.workflow_id AND EXISTS (SELECT FROM lease)
),
failures AS (
    DELETE FROM dag_metric_failures d USING old o
    WHERE d.period = o.period AND d.workflow_id = o.workflow_id AND EXISTS (SELECT FROM lease)
),
minutes AS (
    DELETE FROM dag_metric_throughput d
    WHERE d.minute < (SELECT max(o.period) + interval '6 hours' FROM old o)
      AND d.minute < (SELECT f.period FROM first f) AND EXISTS (SELECT FROM lease)
)
SELECT count(*) AS periods FROM old WHERE EXISTS (SELECT FROM lease)

-- name: take_lease
-- Take the lease of the roll-up, after the one that runs now.
INSERT INTO dag_leases (name, holder, expires_at)
VALUES ('metrics', :holder, clock() + make_interval(secs => :lease_seconds))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at

-- name: release_lease
-- Let others count.
DELETE FROM dag_leases WHERE name = 'metrics' AND holder = :holder

-- name: requeue
-- Delete all sums, and queue every finished job again. A job whose turn commits meanwhile is queued by that turn.
WITH lease AS (
    UPDATE dag_leases SET expires_at = clock() + make_interval(secs => :lease_seconds)
    WHERE name = 'metrics' AND holder = :holder
    RETURNING name
),
jobs AS (DELETE FROM dag_metric_jobs WHERE EXISTS (SELECT FROM lease)),
nodes AS (DELETE FROM dag_metric_nodes WHERE EXISTS (SELECT FROM lease)),
failures AS (DELETE FROM dag_metric_failures WHERE EXISTS (SELECT FROM lease)),
minutes AS (DELETE FROM dag_metric_throughput WHERE EXISTS (SELECT FROM lease)),
pending AS (DELETE FROM dag_metric_pending WHERE EXISTS (SELECT FROM lease)),
queued AS (
    INSERT INTO dag_metric_pending (job_id, run)
    SELECT id, run FROM dag_jobs WHERE finished_at IS NOT NULL AND EXISTS (SELECT FROM lease)
)
SELECT name FROM lease

-- name: window
-- The time of the database, and how many jobs are not counted yet.
SELECT extract(epoch FROM clock())::float8 AS now,
       (SELECT count(*) FROM (SELECT FROM dag_metric_pending LIMIT :limit) AS p) AS pending

-- name: workflows
-- The sums of every workflow, or of one, with the bins of its percentiles by nearest rank, and with exact percentiles of at most
-- `max_exact` jobs, unless more than `max_pending` are not counted yet. In one statement: each job is counted or pending, never
-- both or neither. NOT IN is a hash of the pending jobs: a join was planned as a loop while there were few. LIMIT keeps the hash
-- small: with a million pending jobs the server read all of them again for each job (2026-11, longer than 30 s).
WITH bins AS (
    SELECT workflow_id, status, bin, sum(count)::bigint AS count, sum(seconds) AS seconds
    FROM dag_metric_jobs
    WHERE period >= to_timestamp(:since) AND (:workflow_id::text IS NULL OR workflow_id = :workflow_id::text COLLATE "C")
    GROUP BY workflow_id, status, bin
),
ranks AS (
    SELECT workflow_id, bin, sum(count) OVER (PARTITION BY workflow_id ORDER BY bin) AS rank,
           sum(count) OVER (PARTITION BY workflow_id) AS total
    FROM bins WHERE status = 'COMPLETED'
),
percentiles AS (
    SELECT workflow_id, min(bin) FILTER (WHERE rank >= 0.5 * total) AS p50, min(bin) FILTER (WHERE rank >= 0.95 * total) AS p95
    FROM ranks GROUP BY workflow_id
),
sums AS (
    SELECT workflow_id, coalesce(sum(count) FILTER (WHERE status = 'COMPLETED'), 0)::bigint AS completed,
           coalesce(sum(count) FILTER (WHERE status = 'FAILED'), 0)::bigint AS failed,
           coalesce(sum(count) FILTER (WHERE status = 'CANCELLED'), 0)::bigint AS cancelled,
           sum(seconds) FILTER (WHERE status = 'COMPLETED') AS seconds
    FROM bins GROUP BY workflow_id
),
exact AS (
    SELECT j.workflow_id, count(*) AS completed,
           percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY greatest(extract(epoch FROM j.finished_at -
               CASE WHEN j.run = 1 THEN j.started_at ELSE dag_resumed_at(j.id) END)::float8, 0)) AS seconds
    FROM dag_jobs j
    WHERE (SELECT sum(s.completed) FROM sums s) <= :max_exact
      AND (SELECT count(*) FROM (SELECT FROM dag_metric_pending LIMIT :max_pending::bigint + 1) AS p) <= :max_pending
      AND j.finished_at >= to_timestamp(:since) AND j.status = 'COMPLETED' AND NOT j.is_hidden
      AND (:workflow_id::text IS NULL OR j.workflow_id = :workflow_id::text COLLATE "C")
      AND j.id NOT IN (SELECT p.job_id FROM dag_metric_pending p LIMIT :max_pending)
    GROUP BY j.workflow_id
)
SELECT s.*, p.p50, p.p95, e.completed AS exact_count, e.seconds[1] AS exact_p50, e.seconds[2] AS exact_p95
FROM sums s LEFT JOIN percentiles p USING (workflow_id) LEFT JOIN exact e USING (workflow_id)
ORDER BY s.completed + s.failed + s.cancelled DESC, s.workflow_id

-- name: nodes
-- The sums of every node of a workflow, in the same way.
WITH bins AS (
    SELECT node_id, status, bin, sum(count)::bigint AS count, sum(seconds) AS seconds, sum(retries) AS retries
    FROM dag_metric_nodes WHERE workflow_id = :workflow_id AND period >= to_timestamp(:since) GROUP BY node_id, status, bin
),
ranks AS (
    SELECT node_id, bin, sum(count) OVER (PARTITION BY node_id ORDER BY bin) AS rank,
           sum(count) OVER (PARTITION BY node_id) AS total
    FROM bins WHERE status = 'COMPLETED' AND bin >= 0
),
percentiles AS (
    SELECT node_id, min(bin) FILTER (WHERE rank >= 0.5 * total) AS p50, min(bin) FILTER (WHERE rank >= 0.95 * total) AS p95
    FROM ranks GROUP BY node_id
),
sums AS (
    SELECT node_id, coalesce(sum(count) FILTER (WHERE status = 'COMPLETED'), 0)::bigint AS completed,
           coalesce(sum(count) FILTER (WHERE status = 'FAILED'), 0)::bigint AS failed,
           coalesce(sum(count) FILTER (WHERE status = 'SKIPPED'), 0)::bigint AS skipped,
           coalesce(sum(count) FILTER (WHERE status = 'CANCELLED'), 0)::bigint AS cancelled,
           sum(retries)::bigint AS retries,
           coalesce(sum(count) FILTER (WHERE status = 'COMPLETED' AND bin >= 0), 0)::bigint AS timed,
           sum(seconds) FILTER (WHERE status = 'COMPLETED') AS seconds
    FROM bins GROUP BY node_id
),
exact AS (
    SELECT split_part(n.node_id, '__', 1) AS node_id, count(*) AS timed,
           percentile_disc(ARRAY[0.5, 0.95])
               WITHIN GROUP (ORDER BY greatest(extract(epoch FROM n.finished_at - n.started_at)::float8, 0)) AS seconds
    FROM dag_jobs j
    JOIN dag_node_states n ON n.job_id = j.id AND n.source_count IS NULL AND n.status = 'COMPLETED'
    -- "C": the collation of the index.
    WHERE (SELECT sum(s.timed) FROM sums s) <= :max_exact
      AND (SELECT count(*) FROM (SELECT FROM dag_metric_pending LIMIT :max_pending::bigint + 1) AS p) <= :max_pending
      AND j.workflow_id = :workflow_id COLLATE "C" AND j.finished_at >= to_timestamp(:since) AND NOT j.is_hidden
      AND n.started_at IS NOT NULL AND j.id NOT IN (SELECT p.job_id FROM dag_metric_pending p LIMIT :max_pending)
    GROUP BY 1
)
SELECT s.*, p.p50, p.p95, e.timed AS exact_count, e.seconds[1] AS exact_p50, e.seconds[2] AS exact_p95
FROM sums s LEFT JOIN percentiles p USING (node_id) LEFT JOIN exact e USING (node_id) ORDER BY s.node_id

-- name: history
-- The sums of a workflow by period, with the bins of its percentiles by nearest rank.
WITH bins AS (
    SELECT period, status, bin, sum(count)::bigint AS count, sum(seconds) AS seconds
    FROM dag_metric_jobs WHERE period >= to_timestamp(:since) AND workflow_id = :workflow_id COLLATE "C"
    GROUP BY period, status, bin
),
ranks AS (
    SELECT period, bin, sum(count) OVER (PARTITION BY period ORDER BY bin) AS rank,
           sum(count) OVER (PARTITION BY period) AS total
    FROM bins WHERE status = 'COMPLETED'
),
percentiles AS (
    SELECT period, min(bin) FILTER (WHERE rank >= 0.5 * total) AS p50, min(bin) FILTER (WHERE rank >= 0.95 * total) AS p95
    FROM ranks GROUP BY period
),
sums AS (
    SELECT period, coalesce(sum(count) FILTER (WHERE status = 'COMPLETED'), 0)::bigint AS completed,
           coalesce(sum(count) FILTER (WHERE status = 'FAILED'), 0)::bigint AS failed,
           coalesce(sum(count) FILTER (WHERE status = 'CANCELLED'), 0)::bigint AS cancelled,
           sum(seconds) FILTER (WHERE status = 'COMPLETED') AS seconds
    FROM bins GROUP BY period
)
SELECT extract(epoch FROM s.period)::float8 AS at, s.completed, s.failed, s.cancelled, s.seconds, p.p50, p.p95
FROM sums s LEFT JOIN percentiles p USING (period) ORDER BY s.period

-- name: node_durations
-- How many executions of nodes are in each bin, of all workflows or of one. The sums of all are few thousand rows.
SELECT bin, coalesce(sum(count) FILTER (WHERE status = 'COMPLETED'), 0)::bigint AS completed,
       coalesce(sum(count) FILTER (WHERE status = 'FAILED'), 0)::bigint AS failed
FROM dag_metric_nodes
WHERE period >= to_timestamp(:since) AND status IN ('COMPLETED', 'FAILED') AND bin >= 0
  AND (:workflow_id::text IS NULL OR workflow_id = :workflow_id::text COLLATE "C")
GROUP BY bin ORDER BY bin

-- name: failures
-- The most frequent failures: some of each workflow, and a number in all.
SELECT f.workflow_id, f.node_id, f.message, f.count, f.job_id, f.last_at, j.content_hash
FROM (SELECT workflow_id, node_id, message, sum(count)::bigint AS count,
             (array_agg(job_id ORDER BY last_at DESC))[1] AS job_id,
             extract(epoch FROM max(last_at))::float8 AS last_at,
             row_number() OVER (PARTITION BY workflow_id ORDER BY sum(count) DESC, node_id, message) AS rank
      FROM dag_metric_failures
      WHERE period >= to_timestamp(:since)
        AND (:workflow_id::text IS NULL OR workflow_id = :workflow_id::text COLLATE "C")
      GROUP BY workflow_id, node_id, message) AS f
LEFT JOIN dag_jobs j ON j.id = f.job_id
WHERE :per_workflow::integer IS NULL OR f.rank <= :per_workflow::integer
ORDER BY f.count DESC, f.workflow_id, f.node_id, f.message
LIMIT :limit

-- name: throughput
-- Finished jobs by step. The start of the first step is a multiple of the step.
SELECT floor(extract(epoch FROM minute) / :step)::bigint AS step, sum(completed)::bigint AS completed,
       sum(failed)::bigint AS failed, sum(cancelled)::bigint AS cancelled, sum(seconds) AS seconds
FROM dag_metric_throughput
WHERE minute >= to_timestamp(:since) AND minute < to_timestamp(:until)
GROUP BY 1

-- name: submitted
-- Submitted jobs by step, from their ids alone: the upper bits of an id are its milliseconds. A range of the index is counted for
-- each step, and hidden jobs are subtracted: grouping a million ids, and looking each up among the hidden, took 2.5 times as long.
SELECT s.step, (SELECT count(*) FROM dag_jobs j WHERE j.id >= s.low AND j.id < s.high)
             - (SELECT count(*) FROM dag_jobs j WHERE j.is_hidden AND j.id >= s.low AND j.id < s.high) AS submitted
FROM (SELECT step, greatest(:first_id::bigint, greatest(0, step * :step_ms::bigint - :epoch_ms::bigint) << 22) AS low,
             least(:end_id::bigint, greatest(0, (step + 1) * :step_ms::bigint - :epoch_ms::bigint) << 22) AS high
      FROM generate_series(((:first_id::bigint >> 22) + :epoch_ms::bigint) / :step_ms::bigint,
                           ((:end_id::bigint >> 22) + :epoch_ms::bigint) / :step_ms::bigint) AS step) AS s
