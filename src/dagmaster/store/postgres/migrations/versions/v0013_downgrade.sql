SET LOCAL lock_timeout = '10s';
DO $$
DECLARE
    policy record;
    function regprocedure;
BEGIN
    FOR function IN SELECT p.oid::regprocedure FROM pg_proc p
                    WHERE p.pronamespace = 'dagapp'::regnamespace AND starts_with(p.proname, 'dag_gateway_') LOOP
        EXECUTE format('DROP FUNCTION %s', function);
    END LOOP;
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
DROP FUNCTION dag_workflow_tenant(text, text), dag_may_use_workflow(text, text), dag_graph(text), dag_job_tenant(bigint),
    dag_has_tenants();
ALTER TABLE dag_metric_jobs DROP CONSTRAINT dag_metric_jobs_pkey;
ALTER TABLE dag_metric_jobs ADD PRIMARY KEY (period, workflow_id, status, bin);
ALTER TABLE dag_metric_jobs DROP COLUMN tenant;
ALTER TABLE dag_metric_nodes DROP CONSTRAINT dag_metric_nodes_pkey;
ALTER TABLE dag_metric_nodes ADD PRIMARY KEY (workflow_id, period, node_id, status, bin);
ALTER TABLE dag_metric_nodes DROP COLUMN tenant;
ALTER TABLE dag_metric_failures DROP CONSTRAINT dag_metric_failures_pkey;
ALTER TABLE dag_metric_failures ADD PRIMARY KEY (period, workflow_id, node_id, message);
ALTER TABLE dag_metric_failures DROP COLUMN tenant;
ALTER TABLE dag_metric_throughput DROP CONSTRAINT dag_metric_throughput_pkey;
ALTER TABLE dag_metric_throughput ADD PRIMARY KEY (minute);
ALTER TABLE dag_metric_throughput DROP COLUMN tenant;
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
ALTER TABLE dag_handler_trust DROP COLUMN tenant;
ALTER TABLE dag_handler_changes DROP COLUMN tenant;
ALTER TABLE dag_handlers DROP CONSTRAINT dag_handlers_pkey;
ALTER TABLE dag_handlers ADD PRIMARY KEY (name, version);
ALTER TABLE dag_handlers DROP COLUMN tenant;
DROP FUNCTION dag_tenant_of(text);
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
DROP TRIGGER dag_jobs_open_jobs ON dag_jobs;
DROP FUNCTION dag_check_open_jobs();
DROP INDEX dag_jobs_finished, dag_jobs_tenant, dag_jobs_tenant_open;
ALTER TABLE dag_jobs DROP COLUMN tenant;
CREATE INDEX dag_jobs_finished ON dag_jobs (finished_at) INCLUDE (status) WHERE finished_at IS NOT NULL;
DROP TABLE dag_tenants;
DROP FUNCTION dag_new_tenant();
DROP FUNCTION dag_tenant();
