-- Whether policies apply to the role of a connection. Asked without a tenant, where they show no row.

-- name: can_take_role
-- Whether this user can take on a role that serves requests, and the role has rights and policies in this database. Roles belong
-- to all databases of a server.
SELECT coalesce(
    (SELECT CASE WHEN current_setting('server_version_num')::integer >= 160000
                 THEN pg_has_role(session_user, r.oid, 'SET') ELSE pg_has_role(session_user, r.oid, 'MEMBER') END
            AND has_schema_privilege(r.oid, n.oid, 'USAGE')
            AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = to_regclass('dag_jobs'))
     FROM pg_roles r CROSS JOIN pg_namespace n
     WHERE r.rolname = :role::text AND n.nspname = 'dagapp'), false) AS can_take

-- name: isolation
-- What would let the role of this connection see rows of other tenants.
SELECT r.rolname AS user, r.rolsuper AS is_superuser, r.rolbypassrls AS bypasses,
       EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'dagapp'::regnamespace AND c.relname = ANY(:tables::text[])
                                        AND pg_has_role(c.relowner, 'USAGE')) AS is_owner,
       EXISTS (SELECT FROM pg_roles e WHERE e.rolname IN ('dagmaster_orchestrator', 'dagmaster_worker')
                                        AND pg_has_role(e.oid, 'USAGE')) AS is_exempt,
       ARRAY(SELECT c.relname::text FROM pg_class c
             WHERE c.relnamespace = 'dagapp'::regnamespace AND c.relname = ANY(:tables::text[])
               AND NOT row_security_active(c.oid) ORDER BY 1)
       || ARRAY(SELECT 'tenants, without one' FROM (SELECT FROM dag_tenants LIMIT 1) AS t) AS open_tables
FROM pg_roles r WHERE r.rolname = current_user

-- name: tenants
-- How many tenants there are.
SELECT count(*) AS tenants FROM dag_tenants

-- name: column_types
-- The types of the columns of a table.
SELECT a.attname::text AS name, format_type(a.atttypid, NULL) AS type
FROM pg_attribute a
WHERE a.attrelid = to_regclass('dagapp.' || :table::text) AND a.attnum > 0 AND NOT a.attisdropped
