-- The keys of secret inputs by their ids (ADR 0041): a process without the current key notices when it starts. The keys
-- themselves are never in the database.

SET LOCAL lock_timeout = '10s';

CREATE TABLE dag_secret_keys (
    key_id        text COLLATE "C" PRIMARY KEY CHECK (length(key_id) BETWEEN 1 AND 64),
    -- A known text, sealed with the key: only the key can read it.
    verifier      text NOT NULL,
    is_current    boolean NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX dag_secret_keys_current ON dag_secret_keys (is_current) WHERE is_current;

-- No key: an installation that has workflows with secret inputs stores these in clear, as before, until it has one. The
-- search is for the word: it reads each graph once, and a workflow that has it elsewhere does no harm.
INSERT INTO dag_secret_keys (key_id, verifier, is_current)
SELECT 'clear', '', false WHERE EXISTS (SELECT FROM dag_graphs WHERE definition::text LIKE '%"secret"%');
