DROP TABLE dag_metric_watermarks, dag_metric_throughput, dag_metric_failures, dag_metric_durations;
DROP TABLE dag_handlers;
ALTER TABLE dag_jobs DROP COLUMN is_hidden, DROP COLUMN trace_parent;
DROP TABLE dag_audit;
DROP FUNCTION dag_audit_is_append_only();
DROP TABLE dag_api_keys;
