-- Drain of one orchestrator or worker: an operator asks it to claim nothing more. Services of version 0006 continue to
-- run on this schema; they do not drain, and `drain_seen_at` of such a service stays NULL.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

-- A service with a request claims nothing: its claims read its row. `drain_deadline_at`: when a worker releases what still
-- runs; NULL: never. `drain_seen_at`: its first heartbeat after the request.
ALTER TABLE dag_orchestrators
    ADD COLUMN drain_requested_at timestamptz,
    ADD COLUMN drain_seen_at      timestamptz,
    ADD CONSTRAINT dag_orchestrators_drain CHECK (drain_requested_at IS NOT NULL OR drain_seen_at IS NULL);
ALTER TABLE dag_workers
    ADD COLUMN drain_requested_at timestamptz,
    ADD COLUMN drain_deadline_at  timestamptz,
    ADD COLUMN drain_seen_at      timestamptz,
    ADD CONSTRAINT dag_workers_drain
        CHECK (drain_requested_at IS NOT NULL OR (drain_deadline_at IS NULL AND drain_seen_at IS NULL));
