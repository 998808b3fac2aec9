DROP INDEX dag_job_events_at;
DROP INDEX dag_jobs_finished, dag_jobs_cancelled, dag_jobs_failed, dag_jobs_parent, dag_jobs_key, dag_jobs_correlation,
    dag_jobs_submitter, dag_jobs_name, dag_jobs_workflow;
CREATE INDEX dag_jobs_parent ON dag_jobs (parent_job_id) WHERE parent_job_id IS NOT NULL;
ALTER TABLE dag_jobs ALTER COLUMN submitted_by TYPE text COLLATE "default",
    ALTER COLUMN correlation_id TYPE text COLLATE "default";
ALTER TABLE dag_jobs ADD CONSTRAINT dag_jobs_submitted_by_idempotency_key_key UNIQUE (submitted_by, idempotency_key);
DROP FUNCTION dag_displayed_node_status(text, bigint);
DROP FUNCTION dag_displayed_status(text, bigint, bigint);
DROP FUNCTION dag_job_progress(bigint);

ALTER TABLE dag_node_states DROP COLUMN updated_at;
ALTER TABLE dag_jobs DROP COLUMN updated_at, DROP COLUMN name;

UPDATE dag_job_events SET type = 'CommandRefused' WHERE type = 'CommandRejected';
UPDATE dag_job_events
SET type = 'AttemptHandedBack',
    data = CASE WHEN data -> 'cancelled' IS NULL THEN data
                ELSE ((data::jsonb - 'cancelled') || jsonb_build_object('called_off', data -> 'cancelled'))::json END
WHERE type = 'AttemptReleased';

ALTER TABLE dag_task_results DROP CONSTRAINT dag_task_results_status_check;
UPDATE dag_task_results SET status = 'HANDED_BACK' WHERE status = 'RELEASED';
ALTER TABLE dag_task_results ADD CONSTRAINT dag_task_results_status_check
    CHECK (status IN ('COMPLETED', 'FAILED', 'LOST', 'HANDED_BACK'));
ALTER TABLE dag_task_attempts DROP CONSTRAINT dag_task_attempts_status_check;
UPDATE dag_task_attempts SET status = 'HANDED_BACK' WHERE status = 'RELEASED';
ALTER TABLE dag_task_attempts ADD CONSTRAINT dag_task_attempts_status_check
    CHECK (status IN ('COMPLETED', 'FAILED', 'LOST', 'HANDED_BACK'));

ALTER TABLE dag_node_states RENAME COLUMN lost_attempts TO lost_used;
ALTER TABLE dag_node_states RENAME COLUMN failed_attempts TO tries_used;
