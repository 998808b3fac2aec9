DROP FUNCTION dag_failure_message(text), dag_duration_bin(float8), dag_resumed_at(bigint);
DROP TABLE dag_metric_throughput, dag_metric_failures, dag_metric_nodes, dag_metric_jobs, dag_metric_pending;
DROP TABLE dag_handlers;
DROP TABLE dag_task_receipts;
ALTER TABLE dag_workers DROP COLUMN registered_by;
ALTER TABLE dag_jobs DROP COLUMN is_hidden, DROP COLUMN trace_parent;
DROP TABLE dag_audit;
DROP FUNCTION dag_audit_is_append_only();
DROP TABLE dag_api_keys;
