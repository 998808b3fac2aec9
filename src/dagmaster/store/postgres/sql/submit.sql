-- The parts of the statement that stores jobs.

-- name: new
-- What was sent.
new AS (
    SELECT * FROM rows(new: {@submitted_rows}) AS n
)

-- name: requested
-- The requests, unless their ids or idempotency keys are in use. Assets and revisions of requests belong here as well: what
-- this statement stores is stored with the jobs, or not at all.
requested AS (
    INSERT INTO dag_api_requests (request_id, tenant, actor, submitted_by, workflow_id, platform_id, platform_refs, payload,
                                  idempotency_key, body_hash, hidden_hash, state, error, job_id, priority, callback_url,
                                  sandbox)
    SELECT r.request_id::uuid, r.tenant, r.actor, r.submitted_by, r.workflow_id, r.platform_id, r.platform_refs::jsonb,
           r.payload::json, r.idempotency_key, r.body_hash, r.hidden_hash::json,
           CASE WHEN r.error IS NOT NULL THEN 'rejected' WHEN r.sandbox IS NOT NULL THEN 'sandbox' ELSE 'accepted' END,
           r.error::json, r.job_id, r.priority,
           coalesce(r.callback_url, (SELECT t.callback_url FROM dag_tenants t WHERE t.name = r.tenant)), r.sandbox::json
    FROM rows(request: request_id text, tenant text, actor text, submitted_by text, workflow_id text, platform_id text, platform_refs text, payload text, idempotency_key text, body_hash text, hidden_hash text, error text, job_id bigint, priority smallint, callback_url text, sandbox text) AS r
    ON CONFLICT DO NOTHING
    RETURNING request_id, job_id, created_at
)

-- name: new_of_requests
-- The jobs of the requests that were stored.
new AS (
    SELECT n.* FROM rows(new: {@submitted_rows}) AS n WHERE n.id IN (SELECT job_id FROM requested)
)

-- name: stored_requests
-- The ids of the new requests, each with when it was stored.
(SELECT string_agg(request_id || '=' || extract(epoch FROM created_at), ',') FROM requested) AS requests

-- name: jobs
-- The jobs, each with its first event.
added AS (
    INSERT INTO dag_jobs ({@submitted_columns}, event_seq, created_at, updated_at)
    SELECT {@submitted_values}, 1, now.at, now.at
    FROM new CROSS JOIN (SELECT clock() AS at) AS now
    ON CONFLICT (submitted_by, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, submitted_by, queue, resumed_from, created_at
),
events_appended AS (
    INSERT INTO dag_job_events (job_id, seq, type, at, by, data)
    SELECT id, 1, 'JobSubmitted', created_at, coalesce(nullif(submitted_by, ''), 'anonymous'),
           CASE WHEN resumed_from IS NOT NULL THEN json_build_object('resumed_from', resumed_from::text) END
    FROM added
)

-- name: followed
-- The requests that led to the job which a new one resumes lead to the new one.
followed AS (
    UPDATE dag_api_requests r SET job_id = a.id, updated_at = a.created_at
    FROM added a WHERE a.resumed_from IS NOT NULL AND r.job_id = a.resumed_from
)

-- name: audited
-- Their audit entries, except for a job whose idempotency key is in use.
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb
    FROM entries JOIN added ON added.id = entries.object_id::bigint
)

-- name: stored
-- The ids of the new jobs. Orchestrators are woken, unless a job was unowned already.
string_agg(id::text, ',') AS ids,
       CASE WHEN count(*) > 0
             AND (bool_or(queue IS NOT NULL)
                  -- In the order of an index. EXISTS would read the whole table for the first unowned job.
                  OR (SELECT id FROM dag_jobs
                      WHERE owner_id IS NULL AND status IN ('PENDING', 'RUNNING') AND queue IS NULL
                      ORDER BY owner_id, priority DESC, id LIMIT 1) IS NULL)
            THEN pg_notify('dagmaster_jobs', '')::text END AS notified
FROM added
