SET LOCAL lock_timeout = '10s';
ALTER TABLE dag_workers
    DROP CONSTRAINT dag_workers_drain,
    DROP COLUMN drain_seen_at,
    DROP COLUMN drain_deadline_at,
    DROP COLUMN drain_requested_at;
ALTER TABLE dag_orchestrators
    DROP CONSTRAINT dag_orchestrators_drain,
    DROP COLUMN drain_seen_at,
    DROP COLUMN drain_requested_at;
