-- Only indexes: services of versions 0002 to 0004 continue to run on this schema, and 0003 and 0004 start on it.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

-- The failed jobs of one workflow, which may have none among all that failed. They hold all that a list asks for, else
-- the planner reads the failed jobs of all workflows, in the hope of a match (ADR 0017).
CREATE INDEX dag_jobs_failed_workflow ON dag_jobs (workflow_id COLLATE "C", id) INCLUDE (name)
    WHERE status = 'FAILED' AND NOT is_hidden;
CREATE INDEX dag_jobs_cancelled_workflow ON dag_jobs (workflow_id COLLATE "C", id) INCLUDE (name)
    WHERE status = 'CANCELLED' AND NOT is_hidden;
-- With the status: a workflow none of whose jobs completed is read in the index alone. No update of a status is HOT anyway.
CREATE INDEX dag_jobs_workflow_status ON dag_jobs (workflow_id COLLATE "C", id) INCLUDE (version, is_hidden, status);
DROP INDEX dag_jobs_workflow;

-- Whether a worker holds an exclusive task: each claim of an HTTP worker asks. Few tasks are exclusive.
CREATE INDEX dag_task_queue_exclusive_held ON dag_task_queue (worker_id) WHERE isolation = 2;
