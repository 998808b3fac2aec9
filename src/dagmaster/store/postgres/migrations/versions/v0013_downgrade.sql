SET LOCAL lock_timeout = '10s';
DO $$
DECLARE
    policy record;
BEGIN
    IF EXISTS (SELECT FROM dag_tenants WHERE name <> 'default') THEN
        RAISE EXCEPTION 'there are further tenants: earlier versions would show their jobs and keys to everybody';
    END IF;
    FOR policy IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'dagapp' LOOP
        EXECUTE format('DROP POLICY %I ON dagapp.%I', policy.policyname, policy.tablename);
        EXECUTE format('ALTER TABLE dagapp.%I DISABLE ROW LEVEL SECURITY', policy.tablename);
    END LOOP;
END $$;
ALTER TABLE dag_jobs DROP CONSTRAINT dag_jobs_submitted_by_check;
ALTER TABLE dag_jobs ADD CONSTRAINT dag_jobs_submitted_by_check CHECK (length(submitted_by) <= 80) NOT VALID;
ALTER TABLE dag_task_receipts DROP COLUMN tenant;
ALTER TABLE dag_audit DROP COLUMN tenant;
ALTER TABLE dag_workers DROP COLUMN tenant;
ALTER TABLE dag_browser_sessions DROP COLUMN tenant;
ALTER TABLE dag_api_keys DROP COLUMN tenant;
DROP INDEX dag_workflows_one_active;
ALTER TABLE dag_workflows DROP CONSTRAINT dag_workflows_pkey;
ALTER TABLE dag_workflows ADD PRIMARY KEY (workflow_id, version);
CREATE UNIQUE INDEX dag_workflows_one_active ON dag_workflows (workflow_id) WHERE is_active;
ALTER TABLE dag_workflows DROP COLUMN tenant;
DROP INDEX dag_jobs_finished, dag_jobs_tenant, dag_jobs_tenant_open;
ALTER TABLE dag_jobs DROP COLUMN tenant;
CREATE INDEX dag_jobs_finished ON dag_jobs (finished_at) INCLUDE (status) WHERE finished_at IS NOT NULL;
DROP TABLE dag_tenants;
DROP FUNCTION dag_new_tenant();
DROP FUNCTION dag_tenant();
