-- The parts of queries about lists of requests. A query has only the conditions that its filter sets.

-- name: page
-- Requests that match, newest first, each with its job.
SELECT r.request_id::text AS request_id, r.status, r.tenant, r.workflow_id, r.platform_id, r.platform_refs, r.actor,
       r.submitted_by, r.priority, r.idempotency_key, r.callback_url, r.job_id, r.error AS rejection, r.sandbox IS NOT NULL AS is_sandbox,
       extract(epoch FROM r.created_at)::float8 AS submitted_at, r.completed_at
FROM (SELECT r.*, {@request_status} AS status, {@request_end} AS completed_at
      -- Limited before the jobs are looked up, unless the status decides: the planner underestimates a tenant's rows.
      FROM (SELECT r.* FROM {source} WHERE {conditions} ORDER BY r.created_at DESC, r.request_id DESC {first}) AS r
      LEFT JOIN LATERAL (SELECT j.status, j.finished_at FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j ON true) AS r
WHERE {shown}
ORDER BY r.created_at DESC, r.request_id DESC
LIMIT :limit::integer

-- name: all
-- All requests.
dag_api_requests r

-- name: open
-- Requests that may be open: of an open job, or of a sandbox a moment ago.
(SELECT r.* FROM dag_jobs o JOIN dag_api_requests r ON r.job_id = o.id WHERE o.status IN ('PENDING', 'RUNNING')
 UNION ALL
 SELECT r.* FROM dag_api_requests r WHERE r.state = 'sandbox' AND r.created_at > clock() - interval '1 minute') AS r

-- name: first
-- As many as the page has.
LIMIT :limit::integer

-- name: statuses
-- Only with one of these statuses.
r.status = ANY(:statuses::text[])

-- name: equality
-- Requests with a value in a column.
r.{column} = :{column}::text

-- name: request_id
-- One request.
r.request_id = :request_id::uuid

-- name: after
-- Requests after a page.
(r.created_at, r.request_id) < (to_timestamp(:after_at::float8), :after_id::uuid)
