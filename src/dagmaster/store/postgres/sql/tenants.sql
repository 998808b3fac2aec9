-- Tenants. There are few: they are read as a whole.

-- name: all
-- All tenants.
SELECT {@tenant} FROM dag_tenants t ORDER BY t.name

-- name: missing
-- Which platforms are not declared, and which workflows the installation has not published. `*` stands for all.
SELECT array(SELECT n FROM unnest(:platforms::text[]) AS n
             WHERE n <> '*' AND NOT EXISTS (SELECT FROM dag_platforms p WHERE p.platform_id = n)) AS platforms,
       array(SELECT n FROM unnest(:workflows::text[]) AS n
             WHERE n <> '*' AND NOT EXISTS (SELECT FROM dag_workflows w
                                            WHERE w.workflow_id = n AND w.tenant = 'default')) AS workflows

-- name: create
-- Store a tenant, with its audit entry, unless there is one of this name.
WITH created AS (
    INSERT INTO dag_tenants (name, title, platforms, workflows, max_open_jobs, requests_per_day, rate_per_second, rate_burst,
                             callback_url, created_at, created_by, updated_at)
    SELECT :name, coalesce(r.title, ''), coalesce(r.platforms, '{}'), coalesce(r.workflows, '{}'), r.max_open_jobs,
           r.requests_per_day, r.rate_per_second, r.rate_burst, r.callback_url, clock(), :created_by, clock()
    FROM jsonb_populate_record(NULL::dag_tenants, :changes::jsonb) AS r
    ON CONFLICT (name) DO NOTHING
    RETURNING *
),
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb FROM created CROSS JOIN entries
)
SELECT {@tenant} FROM created t

-- name: change
-- Change the fields of a tenant that are named, with the audit entry. What is null is no limit any more.
WITH changed AS (
    UPDATE dag_tenants t
    SET (title, platforms, workflows, max_open_jobs, requests_per_day, rate_per_second, rate_burst, callback_url) =
            (SELECT coalesce(r.title, ''), coalesce(r.platforms, '{}'), coalesce(r.workflows, '{}'), r.max_open_jobs,
                    r.requests_per_day, r.rate_per_second, r.rate_burst, r.callback_url
             FROM jsonb_populate_record(t, :changes::jsonb) AS r),
        disabled_at = CASE WHEN :is_disabled::boolean IS NULL THEN t.disabled_at
                           WHEN :is_disabled::boolean THEN coalesce(t.disabled_at, clock()) END,
        updated_at = clock()
    WHERE t.name = :name
    RETURNING t.*
),
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb FROM changed CROSS JOIN entries
)
SELECT {@tenant} FROM changed t
