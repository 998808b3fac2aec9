-- Services are stopped for this one: it renames columns and values that running code reads.

ALTER TABLE dag_node_states RENAME COLUMN tries_used TO failed_attempts;
ALTER TABLE dag_node_states RENAME COLUMN lost_used TO lost_attempts;

-- A task that comes back unfinished is released.
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
ALTER TABLE dag_jobs ADD COLUMN name text CHECK (length(name) BETWEEN 1 AND 128);
UPDATE dag_jobs SET name = workflow_id;
ALTER TABLE dag_jobs ALTER COLUMN name SET NOT NULL;

-- When a row last changed. Not indexed: an index on a column that every turn writes would end HOT updates.
ALTER TABLE dag_jobs ADD COLUMN updated_at timestamptz;
UPDATE dag_jobs SET updated_at = coalesce(finished_at, started_at, created_at);
ALTER TABLE dag_jobs ALTER COLUMN updated_at SET NOT NULL, ALTER COLUMN updated_at SET DEFAULT clock();
ALTER TABLE dag_node_states ADD COLUMN updated_at timestamptz;
UPDATE dag_node_states SET updated_at = coalesce(finished_at, started_at, clock());
ALTER TABLE dag_node_states ALTER COLUMN updated_at SET NOT NULL, ALTER COLUMN updated_at SET DEFAULT clock();
