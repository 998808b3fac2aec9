SET LOCAL lock_timeout = '10s';

ALTER TABLE dag_jobs ADD COLUMN submitter_label text;

COMMENT ON COLUMN dag_jobs.submitter_label IS
    'Who asked for the job, as its submitter says: shown next to submitted_by, and never who may do something';
