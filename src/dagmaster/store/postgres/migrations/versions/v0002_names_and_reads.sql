-- Services are stopped for this one: it renames columns and values that running code reads.

ALTER TABLE dag_node_states RENAME COLUMN tries_used TO failed_attempts;
ALTER TABLE dag_node_states RENAME COLUMN lost_used TO lost_attempts;

-- A task that was given up unfinished is RELEASED.
ALTER TABLE dag_task_attempts DROP CONSTRAINT dag_task_attempts_status_check;
UPDATE dag_task_attempts SET status = 'RELEASED' WHERE status = 'HANDED_BACK';
ALTER TABLE dag_task_attempts ADD CONSTRAINT dag_task_attempts_status_check
    CHECK (status IN ('COMPLETED', 'FAILED', 'LOST', 'RELEASED'));
ALTER TABLE dag_task_results DROP CONSTRAINT dag_task_results_status_check;
UPDATE dag_task_results SET status = 'RELEASED' WHERE status = 'HANDED_BACK';
ALTER TABLE dag_task_results ADD CONSTRAINT dag_task_results_status_check
    CHECK (status IN ('COMPLETED', 'FAILED', 'LOST', 'RELEASED'));

UPDATE dag_job_events
SET type = 'AttemptReleased',
    data = CASE WHEN data -> 'called_off' IS NULL THEN data
                ELSE ((data::jsonb - 'called_off') || jsonb_build_object('cancelled', data -> 'called_off'))::json END
WHERE type = 'AttemptHandedBack';
UPDATE dag_job_events SET type = 'CommandRejected' WHERE type = 'CommandRefused';

-- A job has a name, which people search for; by default that of its workflow.
ALTER TABLE dag_jobs ADD COLUMN name text COLLATE "C" CHECK (length(name) BETWEEN 1 AND 128);
UPDATE dag_jobs SET name = workflow_id;
ALTER TABLE dag_jobs ALTER COLUMN name SET NOT NULL;

-- When a row last changed. Not indexed: an index on a column that every turn writes would end HOT updates.
ALTER TABLE dag_jobs ADD COLUMN updated_at timestamptz;
UPDATE dag_jobs SET updated_at = coalesce(finished_at, started_at, created_at);
ALTER TABLE dag_jobs ALTER COLUMN updated_at SET NOT NULL, ALTER COLUMN updated_at SET DEFAULT clock();
ALTER TABLE dag_node_states ADD COLUMN updated_at timestamptz;
UPDATE dag_node_states SET updated_at = coalesce(finished_at, started_at, clock());
ALTER TABLE dag_node_states ALTER COLUMN updated_at SET NOT NULL, ALTER COLUMN updated_at SET DEFAULT clock();

-- What lists read (ADR 0017) -------------------------------------------------------------------------------------------

-- The displayed status: the same rule as `displayed_status` in engine/status.py. Every query uses these functions.
CREATE FUNCTION dag_job_progress(job bigint, OUT finished bigint, OUT waiting bigint, OUT active bigint)
RETURNS SETOF record LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT count(*) FILTER (WHERE n.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')
                              AND n.skip_reason IS DISTINCT FROM 'superseded'),
           count(*) FILTER (WHERE n.status = 'WAITING'),
           count(*) FILTER (WHERE n.status IN ('READY', 'DISPATCHED', 'RUNNING') AND n.source_count IS NULL)
    FROM dagapp.dag_node_states n WHERE n.job_id = job
$$;
CREATE FUNCTION dag_displayed_status(status text, waiting bigint, active bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN status = 'RUNNING' AND waiting > 0 AND active = 0 THEN 'WAITING' ELSE status END
$$;
-- A node whose task a worker has claimed is displayed as RUNNING.
CREATE FUNCTION dag_displayed_node_status(status text, worker_id bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN status = 'DISPATCHED' AND worker_id IS NOT NULL THEN 'RUNNING' ELSE status END
$$;

-- Names are compared byte by byte: then a prefix is a range of an index, whatever the collation of the database is.
ALTER TABLE dag_jobs ALTER COLUMN submitted_by TYPE text COLLATE "C", ALTER COLUMN correlation_id TYPE text COLLATE "C";

-- Every list of jobs is in the order of their ids, so each index ends in the id. None has a column that a turn writes
-- more than once or twice in the life of a job: a turn stays a HOT update.
CREATE INDEX dag_jobs_workflow ON dag_jobs (workflow_id, id);
CREATE INDEX dag_jobs_name ON dag_jobs (name, id);
CREATE INDEX dag_jobs_submitter ON dag_jobs (submitted_by, id);
CREATE INDEX dag_jobs_correlation ON dag_jobs (correlation_id, id) WHERE correlation_id IS NOT NULL;
-- Most jobs have no key: they are not in this index.
ALTER TABLE dag_jobs DROP CONSTRAINT dag_jobs_submitted_by_idempotency_key_key;
CREATE UNIQUE INDEX dag_jobs_key ON dag_jobs (idempotency_key, submitted_by) WHERE idempotency_key IS NOT NULL;
DROP INDEX dag_jobs_parent;
CREATE INDEX dag_jobs_parent ON dag_jobs (parent_job_id, id) WHERE parent_job_id IS NOT NULL;
CREATE INDEX dag_jobs_failed ON dag_jobs (id) WHERE status = 'FAILED';
CREATE INDEX dag_jobs_cancelled ON dag_jobs (id) WHERE status = 'CANCELLED';
-- With the status, so that finished jobs are counted from the index alone.
CREATE INDEX dag_jobs_finished ON dag_jobs (finished_at) INCLUDE (status) WHERE finished_at IS NOT NULL;

-- Events are written in the order of time: one entry for each 32 pages is enough, and an insert pays nothing for it.
CREATE INDEX dag_job_events_at ON dag_job_events USING brin (at) WITH (pages_per_range = 32, autosummarize = on);
