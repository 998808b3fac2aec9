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
