-- Requests of partners, and platforms. Requests are stored with their jobs (submit.sql). Who sees which rows is decided by the
-- policies of their tables; `actor` narrows a caller to what it sent.

-- name: find
-- The requests that have these idempotency keys, else these ids.
SELECT n.asked, r.*
FROM unnest(:ids::text[], :actors::text[], :keys::text[]) AS n (asked, actor, key)
CROSS JOIN LATERAL (
    (SELECT {@stored_request} FROM dag_api_requests r WHERE r.idempotency_key = n.key AND r.actor = n.actor LIMIT 1)
    UNION ALL
    (SELECT {@stored_request} FROM dag_api_requests r WHERE r.request_id = n.asked::uuid LIMIT 1)
    LIMIT 1) r

-- name: status
-- How far a request is. The columns of a job are named: the role of a gateway may not read its inputs.
SELECT r.request_id::text AS request_id, r.workflow_id, {@request_status} AS status,
       extract(epoch FROM r.created_at)::float8 AS submitted_at, {@request_end} AS completed_at,
       j.status = 'CANCELLED' AS is_cancelled,
       coalesce(r.error ->> 'code', r.sandbox ->> 'error_code', j.error ->> 'kind') AS error_code,
       coalesce(j.result, r.sandbox -> 'result') AS result, j.result_ref,
       greatest(n.rows, g.nodes + coalesce(n.children, 0)) AS total, n.completed, n.running, n.failed, n.skipped, n.cancelled
FROM dag_api_requests r
LEFT JOIN LATERAL (SELECT j.id, j.status, j.error, j.result, j.result_ref, j.finished_at, j.content_hash
                   FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j ON true
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE n.skip_reason IS DISTINCT FROM 'superseded') AS rows, sum(n.source_count) AS children,
           count(*) FILTER (WHERE n.status = 'COMPLETED') AS completed,
           count(*) FILTER (WHERE n.status IN ('DISPATCHED', 'RUNNING', 'WAITING')) AS running,
           count(*) FILTER (WHERE n.status = 'FAILED') AS failed,
           count(*) FILTER (WHERE n.status = 'SKIPPED' AND n.skip_reason IS DISTINCT FROM 'superseded') AS skipped,
           count(*) FILTER (WHERE n.status = 'CANCELLED') AS cancelled
    FROM dag_node_states n WHERE n.job_id = j.id
) n ON j.id IS NOT NULL
LEFT JOIN LATERAL (
    SELECT count(*) AS nodes FROM (SELECT json_object_keys(dag_graph(j.content_hash) -> 'nodes')) AS keys
) g ON j.status IN ('PENDING', 'RUNNING')
WHERE r.request_id = :request_id::uuid AND (:actor::text IS NULL OR r.actor = :actor::text)

-- name: platforms
-- The platforms, by id.
SELECT platform_id, title, id_fields, optional_id_fields, field_types, field_map FROM dag_platforms ORDER BY platform_id

-- name: put_platform
-- Store a platform, or replace its declaration, with its audit entry.
WITH stored AS (
    INSERT INTO dag_platforms (platform_id, title, id_fields, optional_id_fields, field_types, field_map)
    VALUES (:platform_id, :title, :id_fields::text[], :optional_id_fields::text[], :field_types::jsonb, :field_map::jsonb)
    ON CONFLICT (platform_id) DO UPDATE
    SET title = excluded.title, id_fields = excluded.id_fields, optional_id_fields = excluded.optional_id_fields,
        field_types = excluded.field_types, field_map = excluded.field_map, updated_at = clock()
),
{@audit_entries}
INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb FROM entries
