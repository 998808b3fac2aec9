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

-- Graphs are stored by their content, and found by the hash that a row names: nobody lists or changes them.
REVOKE SELECT, UPDATE, DELETE ON dagapp.dag_graphs FROM dagmaster_api, dagmaster_gateway;
GRANT EXECUTE ON FUNCTION dagapp.dag_job_tenant, dagapp.dag_has_tenants TO dagmaster_api;
GRANT EXECUTE ON FUNCTION dagapp.dag_graph TO dagmaster_orchestrator, dagmaster_api, dagmaster_gateway;
-- No server uses these.
REVOKE ALL ON dagapp.dag_pool_slots, dagapp.dag_schedules FROM dagmaster_api;
-- A partition has no policies: its rows are read through the table that it is part of.
REVOKE ALL ON dagapp.dag_job_events_all FROM dagmaster_api, dagmaster_gateway;

-- Every service reads the version. None changes it.
REVOKE ALL ON dagapp.alembic_version FROM dagmaster_orchestrator, dagmaster_api;
GRANT SELECT ON dagapp.alembic_version TO dagmaster_orchestrator, dagmaster_worker, dagmaster_api, dagmaster_gateway;

-- Without id and at: a service cannot choose the place and the time of an entry.
REVOKE ALL ON dagapp.dag_audit FROM dagmaster_orchestrator, dagmaster_api;
GRANT SELECT, INSERT (actor, action, object_kind, object_id, request_id, details) ON dagapp.dag_audit
    TO dagmaster_orchestrator, dagmaster_api;
-- A relay pauses endpoints of all tenants.
GRANT INSERT (tenant) ON dagapp.dag_audit TO dagmaster_orchestrator;

-- What a gateway reads, column by column: who only shows jobs needs neither their inputs nor their outputs (ADR 0050). It finds
-- keys by a function (gateway_role.py).
REVOKE ALL ON ALL TABLES IN SCHEMA dagapp FROM dagmaster_gateway;
GRANT SELECT ON dagapp.alembic_version TO dagmaster_gateway;
GRANT SELECT (id, tenant, workflow_id, content_hash, status, correlation_id, idempotency_key, error, result, result_ref,
              owner_id, is_hidden, created_at, started_at, finished_at) ON dagapp.dag_jobs TO dagmaster_gateway;
GRANT SELECT (job_id, node_id, status, skip_reason, attempt, task_id, source_count, error, started_at, finished_at)
    ON dagapp.dag_node_states TO dagmaster_gateway;
GRANT SELECT (task_id, job_id, worker_id) ON dagapp.dag_task_queue TO dagmaster_gateway;
GRANT SELECT (job_id, seq, type, at, by, node_id, attempt) ON dagapp.dag_job_events TO dagmaster_gateway;
GRANT SELECT (owner_id, heartbeat_at, stopped_at) ON dagapp.dag_orchestrators TO dagmaster_gateway;
GRANT SELECT (worker_id, tenant, heartbeat_at, stopped_at) ON dagapp.dag_workers TO dagmaster_gateway;
GRANT SELECT (name, workflows, platforms, rate_per_second, rate_burst, disabled_at)
    ON dagapp.dag_tenants TO dagmaster_gateway;
GRANT SELECT (request_id, tenant, actor, workflow_id, state, error, sandbox, job_id, created_at, result_key)
    ON dagapp.dag_api_requests TO dagmaster_gateway;
