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

DO $$
DECLARE
    readable text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_gateway') THEN
        RETURN;
    END IF;
    GRANT SELECT, INSERT, UPDATE, DELETE ON dag_secret_keys TO dagmaster_orchestrator;
    -- A role that only shows jobs does not need their inputs. A column that is added later is granted in its migration.
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) INTO readable
    FROM pg_attribute
    WHERE attrelid = 'dag_jobs'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'inputs';
    REVOKE SELECT ON dag_jobs FROM dagmaster_gateway;
    EXECUTE format('GRANT SELECT (%s) ON dag_jobs TO dagmaster_gateway', readable);
END $$;
