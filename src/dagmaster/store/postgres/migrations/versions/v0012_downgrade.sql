SET LOCAL lock_timeout = '10s';
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_gateway') THEN
        REVOKE SELECT ON dag_jobs FROM dagmaster_gateway;
        GRANT SELECT ON dag_jobs TO dagmaster_gateway;
    END IF;
END $$;
DROP TABLE dag_secret_keys;
-- As it was in schema 0011.
CREATE OR REPLACE FUNCTION dag_may_have_handler(handler text, caller text, named text[]) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT handler = ANY(named)
        OR EXISTS (SELECT FROM dagapp.dag_handler_trust t WHERE t.name = handler AND t.actor = caller)
        OR coalesce((SELECT bool_and(h.owner = caller AND (h.trusted_at IS NOT NULL OR strpos(handler, '.') = 0))
                     FROM dagapp.dag_handlers h WHERE h.name = handler), false)
$$;
DROP FUNCTION dag_names_of_alias;
ALTER TABLE dag_handlers DROP COLUMN aliases;
DROP FUNCTION dag_aliases;
