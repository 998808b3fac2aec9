SET LOCAL lock_timeout = '10s';
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_gateway') THEN
        REVOKE SELECT ON dag_jobs FROM dagmaster_gateway;
        GRANT SELECT ON dag_jobs TO dagmaster_gateway;
    END IF;
END $$;
DROP TABLE dag_secret_keys;
