-- The rights of the roles on the tables. `dagmaster migrate` runs it after the migrations, once the roles exist: rights
-- that a new table needs are added here, and a migration grants none. The functions of dagmaster_worker are made from its
-- statements (worker_role.py).

GRANT USAGE ON SCHEMA dagapp TO dagmaster_orchestrator, dagmaster_worker, dagmaster_api, dagmaster_gateway;
-- A server writes for its callers, and as its workers; which rows, the policies of tenant_policies.py decide.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dagapp TO dagmaster_orchestrator, dagmaster_api;
GRANT EXECUTE ON FUNCTION dagapp.dag_send_batch TO dagmaster_orchestrator, dagmaster_api;

-- Who serves callers stores a callback (of a sandbox), and sends one again; triggers write the others, relays the rest.
REVOKE DELETE ON dagapp.dag_callbacks, dagapp.dag_external_services, dagapp.dag_signing_secrets FROM dagmaster_api;
GRANT EXECUTE ON FUNCTION dagapp.dag_public_signing_keys
    TO dagmaster_orchestrator, dagmaster_api, dagmaster_gateway;

-- Graphs are stored by their content, and shared: nothing changes one.
REVOKE UPDATE, DELETE ON dagapp.dag_graphs FROM dagmaster_api;

-- Every service reads the version. None changes it.
REVOKE ALL ON dagapp.alembic_version FROM dagmaster_orchestrator, dagmaster_api;
GRANT SELECT ON dagapp.alembic_version TO dagmaster_orchestrator, dagmaster_worker, dagmaster_api, dagmaster_gateway;

-- Without id and at: a service cannot choose the place and the time of an entry.
REVOKE ALL ON dagapp.dag_audit FROM dagmaster_orchestrator, dagmaster_api;
GRANT SELECT, INSERT (actor, action, object_kind, object_id, request_id, details) ON dagapp.dag_audit
    TO dagmaster_orchestrator, dagmaster_api;
-- A relay pauses endpoints of all tenants.
GRANT INSERT (tenant) ON dagapp.dag_audit TO dagmaster_orchestrator;

GRANT SELECT ON dagapp.dag_workflows, dagapp.dag_graphs, dagapp.dag_node_states,
    dagapp.dag_task_attempts, dagapp.dag_job_events, dagapp.dag_orchestrators, dagapp.dag_workers,
    dagapp.dag_node_batches, dagapp.dag_added_nodes, dagapp.dag_groups, dagapp.dag_dependencies,
    dagapp.dag_tenants, dagapp.dag_platforms, dagapp.dag_api_requests
    TO dagmaster_gateway;

-- Who only shows jobs does not need their inputs (ADR 0041): every column but that one.
REVOKE SELECT ON dagapp.dag_jobs FROM dagmaster_gateway;
DO $$
BEGIN
    EXECUTE (SELECT format('GRANT SELECT (%s) ON dagapp.dag_jobs TO dagmaster_gateway',
                           string_agg(quote_ident(attname), ', ' ORDER BY attnum))
             FROM pg_attribute
             WHERE attrelid = 'dagapp.dag_jobs'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'inputs');
END $$;
