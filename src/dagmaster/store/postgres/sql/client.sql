-- The statements of a client.

-- name: put_graph
-- Store a graph, if it is not stored yet.
INSERT INTO dag_graphs (content_hash, definition) VALUES (:content_hash, :definition::json) ON CONFLICT DO NOTHING

-- name: jobs_with_keys
-- The jobs that have these idempotency keys.
SELECT j.id, j.submitted_by, j.idempotency_key, j.body_hash
FROM unnest(:submitters::text[], :keys::text[]) AS n (submitted_by, key)
CROSS JOIN LATERAL (SELECT * FROM dag_jobs j
                    WHERE j.submitted_by = n.submitted_by AND j.idempotency_key = n.key LIMIT 1) j

-- name: send
-- Put a command into a job's inbox with its audit entry, and wake its owner, or the orchestrators that may claim it.
WITH sent AS (
    INSERT INTO dag_inbox (job_id, kind, body, sent_by, created_at)
    SELECT id, :kind, :body::json, :sent_by, clock() FROM dag_jobs WHERE id = :job_id
    RETURNING id, job_id
),
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''),
           details::jsonb || jsonb_build_object('command_id', sent.id::text)
    FROM sent CROSS JOIN entries
)
SELECT sent.id,
       pg_notify(coalesce('dagmaster_owner_' || (SELECT j.owner_id FROM dag_jobs j WHERE j.id = sent.job_id),
                          'dagmaster_jobs'), 'commands')::text AS notified
FROM sent

-- name: lock_workflow
-- Let the publications and activations of a workflow follow each other, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('dagmaster workflow ' || :workflow_id::text, 0)) AS locked

-- name: workflow_is
-- A row if the versions of a workflow are still these: number, content, and whether it is the active one.
SELECT true AS is_same
WHERE :state::text = coalesce((
    SELECT string_agg(concat_ws(' ', version, content_hash, is_active), ',' ORDER BY version)
    FROM dag_workflows WHERE workflow_id = :workflow_id AND tenant = dag_new_tenant()), '')

-- name: put_workflow
-- Publish a version, or replace its content. Publishing the same content again changes nothing.
INSERT INTO dag_workflows (workflow_id, tenant, version, content_hash, is_active)
VALUES (:workflow_id, dag_new_tenant(), :version, :content_hash, false)
ON CONFLICT (workflow_id, tenant, version) DO UPDATE SET content_hash = excluded.content_hash, created_at = now()
WHERE dag_workflows.content_hash <> excluded.content_hash

-- name: deactivate
-- Deactivate every version of a workflow.
UPDATE dag_workflows SET is_active = false
WHERE workflow_id = :workflow_id AND tenant = dag_new_tenant() AND is_active

-- name: activate
-- Activate a version of a workflow.
UPDATE dag_workflows SET is_active = true
WHERE workflow_id = :workflow_id AND tenant = dag_new_tenant() AND version = :version

-- name: expire_process
-- Expire the leases of a dead process of this host. The time of its last heartbeat is kept in its counters.
WITH orchestrator AS (
    UPDATE dag_orchestrators
    SET heartbeat_at = least(heartbeat_at, clock() - make_interval(secs => :lease_seconds)),
        counters = jsonb_build_object('last_heartbeat_at', extract(epoch FROM heartbeat_at)) || coalesce(counters, '{}')
    WHERE host = :host AND pid = :pid AND stopped_at IS NULL
)
UPDATE dag_workers
SET heartbeat_at = least(heartbeat_at, clock() - make_interval(secs => :worker_lease_seconds)),
    counters = jsonb_build_object('last_heartbeat_at', extract(epoch FROM heartbeat_at)) || coalesce(counters, '{}')
WHERE host = :host AND pid = :pid AND stopped_at IS NULL

-- name: assign_queue
-- Give all tasks of a job to a queue, unless an orchestrator has the job. One that has finished may have a command.
WITH assigned AS (
    UPDATE dag_jobs SET queue = :queue WHERE id = :job_id AND owner_id IS NULL AND status <> 'RUNNING' RETURNING id
)
SELECT id, pg_notify('dagmaster_jobs', '')::text AS notified FROM assigned

-- name: drain
-- Ask an orchestrator or a worker to drain, with the audit entry, and wake it. One that has stopped is left as it is.
WITH worker AS (
    UPDATE dag_workers
    SET drain_requested_at = coalesce(drain_requested_at, clock()),
        drain_deadline_at = clock() + make_interval(secs => :grace_seconds::float8)
    WHERE worker_id = :service_id AND stopped_at IS NULL
    RETURNING worker_id
),
orchestrator AS (
    UPDATE dag_orchestrators SET drain_requested_at = coalesce(drain_requested_at, clock())
    WHERE owner_id = :service_id AND stopped_at IS NULL
    RETURNING owner_id
),
{@audit_entries},
{@audited_and_woken}

-- name: undrain
-- Withdraw the request, with the audit entry if there was one, and wake the service.
WITH worker AS (
    UPDATE dag_workers SET drain_requested_at = NULL, drain_deadline_at = NULL, drain_seen_at = NULL
    WHERE worker_id = :service_id AND stopped_at IS NULL AND drain_requested_at IS NOT NULL
    RETURNING worker_id
),
orchestrator AS (
    UPDATE dag_orchestrators SET drain_requested_at = NULL, drain_seen_at = NULL
    WHERE owner_id = :service_id AND stopped_at IS NULL AND drain_requested_at IS NOT NULL
    RETURNING owner_id
),
{@audit_entries},
{@audited_and_woken}
