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

-- The other names of the installation's handlers are its own as well (ADR 0040).
CREATE FUNCTION dag_aliases(definition json) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN json_typeof(definition -> 'aliases') = 'array' THEN (definition -> 'aliases')::jsonb ELSE '[]' END
$$;
ALTER TABLE dag_handlers ADD COLUMN aliases jsonb GENERATED ALWAYS AS (dag_aliases(definition)) STORED;
CREATE INDEX dag_handlers_aliases ON dag_handlers USING gin (aliases) WHERE owner = 'installation';

-- The installation's handlers that have an alias. A name of the installation wins over the alias of another handler.
CREATE FUNCTION dag_names_of_alias(alias text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT DISTINCT h.name FROM dagapp.dag_handlers h
    WHERE h.owner = 'installation' AND h.aliases ? alias
      AND NOT EXISTS (SELECT FROM dagapp.dag_handlers o WHERE o.name = alias AND o.owner = 'installation')
$$;

-- Whether workers of a caller may have a handler: an administrator named it (in the key, or by trust in it or in the handler
-- whose alias it is), or it is the caller's own. A name with a dot is a function of the installation's code: no caller owns
-- it without an administrator. No caller owns an alias of the installation's.
CREATE OR REPLACE FUNCTION dag_may_have_handler(handler text, caller text, named text[]) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT handler = ANY(named)
        OR EXISTS (SELECT FROM dagapp.dag_handler_trust t
                   WHERE t.actor = caller
                     AND (t.name = handler OR t.name IN (SELECT dagapp.dag_names_of_alias(handler))))
        OR coalesce((SELECT bool_and(h.owner = caller AND (h.trusted_at IS NOT NULL OR strpos(handler, '.') = 0))
                     FROM dagapp.dag_handlers h WHERE h.name = handler), false)
           AND NOT EXISTS (SELECT FROM dagapp.dag_names_of_alias(handler))
$$;
