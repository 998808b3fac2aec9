-- Finished tasks across jobs. They are found by the events that ended them. Nothing here writes.

-- name: in_window
-- Tasks that finished in a window of time, newest first; not of hidden jobs.
WITH ends AS MATERIALIZED (
    SELECT e.at, e.job_id, e.seq, e.node_id, e.attempt
    FROM dag_job_events e
    WHERE e.at > to_timestamp(:since::float8) AND e.at <= to_timestamp(:until::float8)
      AND (e.at, e.job_id, e.seq) < (to_timestamp(:after_at::float8), :after_job_id::bigint, :after_seq::integer)
      AND e.type IN ('NodeCompleted', 'AttemptFailed', 'AttemptLost', 'AttemptReleased') AND e.attempt IS NOT NULL
      AND e.job_id NOT IN (SELECT j.id FROM dag_jobs j WHERE j.is_hidden)
    ORDER BY e.at DESC, e.job_id DESC, e.seq DESC
    LIMIT :scanned::integer
)
{@finished_tasks}

-- name: of_job
-- Tasks of one job that finished, newest first.
WITH ends AS MATERIALIZED (
    SELECT e.at, e.job_id, e.seq, e.node_id, e.attempt
    FROM dag_job_events e
    WHERE e.job_id = :job_id::bigint AND e.seq < :after_seq::integer AND e.at > to_timestamp(:since::float8)
      AND e.type IN ('NodeCompleted', 'AttemptFailed', 'AttemptLost', 'AttemptReleased') AND e.attempt IS NOT NULL
    ORDER BY e.seq DESC
    LIMIT :scanned::integer
)
{@finished_tasks}

-- name: now
-- The clock of the database.
SELECT extract(epoch FROM clock())::float8 AS now
