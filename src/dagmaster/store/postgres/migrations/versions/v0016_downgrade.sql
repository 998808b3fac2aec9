SET LOCAL lock_timeout = '10s';
ALTER TABLE dag_jobs DROP COLUMN submitter_label;
