DROP INDEX dag_task_queue_exclusive_held, dag_jobs_cancelled_workflow, dag_jobs_failed_workflow;
CREATE INDEX dag_jobs_workflow ON dag_jobs (workflow_id COLLATE "C", id) INCLUDE (version, is_hidden);
DROP INDEX dag_jobs_workflow_status;
