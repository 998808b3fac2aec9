-- The proof of a worker (ADR 0042): the SHA-256 of a random secret that only its process has. A worker with the role
-- dagmaster_worker has no rights on tables: it calls functions, which ask for the secret. `dagmaster migrate` makes them
-- from the statements of its version. Services of version 0009 continue to run on this schema, also workers with that
-- role: it loses its rights on tables by `dagmaster migrate --roles`. NULL: a worker of theirs, or one that speaks HTTP.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

ALTER TABLE dag_workers ADD COLUMN secret_digest text;
