-- What several statements have in common. A statement has it where its text says {@name}. The columns of jobs come from
-- their table (`fragments` in job_columns.py).

-- name: claimed_job
-- The columns of a job that an orchestrator needs.
{@claimed_columns}, cancel_requested_at IS NOT NULL AS cancel_requested,
       EXISTS (SELECT FROM dag_node_batches b WHERE b.job_id = claimed.id AND b.accepted_order IS NOT NULL) AS has_grown

-- name: claim_jobs
-- Give the jobs that are `claimable` to an orchestrator, with their events, and return them.
claimed AS (
    UPDATE dag_jobs
    SET owner_id = :owner_id, owner_epoch = owner_epoch + 1, event_seq = event_seq + 1
    WHERE id = ANY(ARRAY(SELECT id FROM claimable)) AND EXISTS (SELECT FROM me)
    RETURNING *
),
events_appended AS (
    INSERT INTO dag_job_events (job_id, seq, type, at, by, data)
    SELECT c.id, c.event_seq, 'JobClaimed', clock(), :by,
           CASE WHEN p.owner_id IS NULL OR c.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
                THEN json_build_object('epoch', c.owner_epoch, 'where', me.host || ':' || me.pid)
                ELSE json_build_object('epoch', c.owner_epoch, 'where', me.host || ':' || me.pid,
                                       'before', p.host || ':' || p.pid, 'after',
                                       -- One that stopped sent a heartbeat a moment before; one that died was expired a lease later.
                                       CASE WHEN p.heartbeat_at <= p.stopped_at - make_interval(secs => :lease_seconds)
                                            THEN 'died' ELSE 'released' END) END
    FROM me CROSS JOIN claimed c
    LEFT JOIN LATERAL (SELECT * FROM dag_orchestrators p WHERE p.owner_id = c.previous_owner_id LIMIT 1) p ON true
)
SELECT {@claimed_job}
FROM claimed ORDER BY priority DESC, id

-- name: queued_task
-- The columns of a task in flight, `q`, that are shown.
q.task_id, q.job_id, q.node_id, q.attempt, q.queue, q.priority, q.handler, q.worker_id, q.progress,
       coalesce(q.isolation, 0) AS isolation, extract(epoch FROM q.dispatched_at)::float8 AS dispatched_at,
       extract(epoch FROM q.claimed_at)::float8 AS claimed_at, extract(epoch FROM q.started_at)::float8 AS started_at,
       extract(epoch FROM q.stop_requested_at)::float8 AS stop_requested_at,
       dag_displayed_node_status('DISPATCHED', q.worker_id, q.started_at) AS status

-- name: finished_tasks
-- The attempts whose ends are in `ends` and match a filter, and how many ends there are. One row of NULLs if none does.
SELECT c.scanned, extract(epoch FROM l.at)::float8 AS last_at, l.job_id AS last_job_id, l.seq AS last_seq, t.*
FROM (SELECT count(*) AS scanned FROM ends) AS c
LEFT JOIN LATERAL (SELECT ends.at, ends.job_id, ends.seq FROM ends ORDER BY ends.at, ends.job_id, ends.seq LIMIT 1) AS l
    ON true
LEFT JOIN LATERAL (
    SELECT extract(epoch FROM e.at)::float8 AS at, e.job_id, e.seq, a.node_id, a.attempt, a.task_id, a.status,
           a.queue, a.worker_id, w.host || ':' || w.pid AS worker, a.error, a.metrics, a.progress,
           extract(epoch FROM a.dispatched_at)::float8 AS dispatched_at,
           extract(epoch FROM a.claimed_at)::float8 AS claimed_at,
           extract(epoch FROM a.started_at)::float8 AS started_at,
           extract(epoch FROM a.completed_at)::float8 AS finished_at
    FROM ends AS e
    CROSS JOIN LATERAL (SELECT * FROM dag_task_attempts a
                        WHERE a.job_id = e.job_id AND a.node_id = e.node_id AND a.attempt = e.attempt LIMIT 1) AS a
    LEFT JOIN dag_workers w ON w.worker_id = a.worker_id
    WHERE (:queue::text IS NULL OR a.queue = :queue::text)
      AND (:worker_id::bigint IS NULL OR a.worker_id = :worker_id::bigint)
      AND (:statuses::text[] IS NULL OR a.status = ANY(:statuses::text[]))
    ORDER BY e.at DESC, e.job_id DESC, e.seq DESC
    LIMIT :limit::integer
) AS t ON true
ORDER BY t.at DESC, t.job_id DESC, t.seq DESC

-- name: replaced_contract
-- What a contract of a handler, `h`, has replaced once a caller's takes its place: a caller's own one replaces nothing.
CASE WHEN h.owner = :actor::text OR h.replaced ->> 'by' = :actor::text THEN h.replaced
         ELSE json_build_object('by', :actor::text, 'owner', h.owner, 'definition', h.definition,
                                'content_hash', h.content_hash, 'published_at', h.published_at, 'trusted_at', h.trusted_at)
    END

-- name: api_key
-- The columns of a key.
key_id, name, array_to_string(scopes, ',') AS scopes, extract(epoch FROM created_at)::float8 AS created_at, created_by,
       extract(epoch FROM expires_at)::float8 AS expires_at, extract(epoch FROM revoked_at)::float8 AS revoked_at,
       extract(epoch FROM last_used_at)::float8 AS last_used_at, extract(epoch FROM clock())::float8 AS now,
       queues, handlers, workflows, is_own, is_local, is_sandbox, tenant

-- name: browser_session
-- The columns of a session.
s.session_id, s.is_link, s.key_id, s.name, s.namespace, s.tenant, array_to_string(s.scopes, ',') AS scopes,
       extract(epoch FROM s.created_at)::float8 AS created_at, extract(epoch FROM s.expires_at)::float8 AS expires_at,
       extract(epoch FROM s.ended_at)::float8 AS ended_at

-- name: tenant
-- The columns of a tenant.
t.name, t.title, t.platforms, t.workflows, t.max_open_jobs, t.requests_per_day, t.rate_per_second, t.rate_burst,
       t.callback_url, extract(epoch FROM t.disabled_at)::float8 AS disabled_at,
       extract(epoch FROM t.created_at)::float8 AS created_at, t.created_by,
       extract(epoch FROM t.updated_at)::float8 AS updated_at

-- name: audit_entries
-- The entries of the audit trail that a statement stores with its change.
entries AS (
    SELECT * FROM rows(audit: actor text, action text, object_kind text, object_id text, request_id text, details text) AS e
)

-- name: results_of_accepted
-- The results of accepted reports, and the notifications of the owners of their jobs.
reported AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, worker_id, status, permanent, output,
                                  output_ref, error, metrics, handler_version, progress, dispatched_at, claimed_at,
                                  started_at, reported_at, batches)
    SELECT job_id, node_id, attempt, task_id, queue, :worker_id, status, permanent, output::json, output_ref,
           error::json, metrics::json, handler_version, progress, dispatched_at, claimed_at, started_at, (SELECT clock()), batches
    FROM accepted
    RETURNING id, task_id, job_id, node_id, attempt, status, permanent, output, output_ref, error, started_at, reported_at,
              handler_version
),
-- Separate, so that no output is carried along when the notification has no results.
encoded AS MATERIALIZED (
    SELECT job_id,
           CASE WHEN :notifies_results THEN
               json_build_array(id, job_id, node_id, attempt, status, permanent, output::text, output_ref, error::text,
                                extract(epoch FROM started_at)::float8, extract(epoch FROM reported_at)::float8,
                                handler_version)::text
           END AS result
    FROM reported
)
SELECT string_agg(task_id::text, ',') AS task_ids,
       (SELECT count(pg_notify('dagmaster_owner_' || o.owner_id,
                               CASE WHEN octet_length(o.results) < 7900 THEN 'results 2 [' || o.results || ']'
                                    ELSE 'results' END))
        FROM (SELECT j.owner_id, string_agg(s.results, ',') AS results
              FROM (SELECT job_id, string_agg(result, ',') AS results FROM encoded GROUP BY job_id) s
              CROSS JOIN LATERAL (SELECT j.owner_id FROM dag_jobs j WHERE j.id = s.job_id LIMIT 1) j
              WHERE j.owner_id IS NOT NULL GROUP BY j.owner_id) o) AS notified
FROM reported

-- name: audited_and_woken
-- The end of a statement about drains: the service that was changed, its audit entries, and its wake-up.
changed AS (
    SELECT 'dagmaster_worker_' || worker_id AS channel FROM worker
    UNION ALL
    SELECT 'dagmaster_owner_' || owner_id FROM orchestrator
),
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb FROM changed CROSS JOIN entries
)
SELECT count(*) AS services, count(pg_notify(channel, 'drain')) AS notified FROM changed

-- name: stored_request
-- What is compared of a request, `r`, when it is sent again, as `n`.
r.request_id::text AS request_id, r.actor = n.actor AS is_own, r.workflow_id, r.body_hash, r.hidden_hash, r.error, r.job_id,
       extract(epoch FROM r.created_at)::float8 AS created_at

-- name: request_status
-- The status of a request, `r`, whose job is `j`. That of a sandbox follows from the clock.
CASE r.state
           WHEN 'rejected' THEN 'failed'
           WHEN 'sandbox' THEN
               CASE WHEN clock() < r.created_at + make_interval(secs => (r.sandbox ->> 'starts_after')::float8) THEN 'pending'
                    WHEN clock() < r.created_at + make_interval(secs => (r.sandbox ->> 'ends_after')::float8) THEN 'running'
                    ELSE r.sandbox ->> 'outcome' END
           ELSE CASE coalesce(j.status, 'FAILED') WHEN 'PENDING' THEN 'pending' WHEN 'COMPLETED' THEN 'completed'
                     WHEN 'FAILED' THEN 'failed' WHEN 'CANCELLED' THEN 'failed' ELSE 'running' END
       END

-- name: request_end
-- When a request, `r`, whose job is `j`, ended.
extract(epoch FROM CASE r.state
           WHEN 'rejected' THEN r.created_at
           WHEN 'sandbox' THEN
               CASE WHEN clock() >= r.created_at + make_interval(secs => (r.sandbox ->> 'ends_after')::float8)
                    THEN r.created_at + make_interval(secs => (r.sandbox ->> 'ends_after')::float8) END
           ELSE j.finished_at END)::float8

-- name: gateway_jobs
-- The jobs of a page as a gateway shows them to administrators.
SELECT j.id, j.workflow_id, dag_displayed_status(j.status, p.waiting, p.active) AS status, j.correlation_id,
       extract(epoch FROM j.created_at)::float8 AS created_at, extract(epoch FROM j.started_at)::float8 AS started_at,
       extract(epoch FROM j.finished_at)::float8 AS completed_at, j.error ->> 'message' AS error_message, j.owner_id
FROM page
CROSS JOIN LATERAL (SELECT j.id, j.workflow_id, j.status, j.correlation_id, j.created_at, j.started_at, j.finished_at,
                           j.error, j.owner_id
                    FROM dag_jobs j WHERE j.id = page.id LIMIT 1) j
LEFT JOIN LATERAL dag_job_progress(j.id) p ON j.status = 'RUNNING'
ORDER BY j.id DESC

-- name: gateway_node_columns
-- The columns of a node that a gateway reads.
n.job_id, n.node_id, n.status, n.attempt, n.task_id, n.error, n.started_at, n.finished_at

-- name: gateway_node
-- A node as a gateway shows it to administrators.
n.node_id, coalesce(dag_displayed_node_status(n.status, q.worker_id), 'PENDING') AS status, coalesce(n.attempt, 0) AS attempt,
       extract(epoch FROM n.started_at)::float8 AS started_at, extract(epoch FROM n.finished_at)::float8 AS completed_at,
       n.error ->> 'message' AS error_message

-- name: waiting_endpoints
-- Tenants with callbacks that are not done, and of each so many endpoints: what more may be sent to them now.
now AS MATERIALIZED (SELECT clock() AS at),
waiting_tenants (tenant) AS (
    (SELECT c.tenant FROM dag_callbacks c WHERE c.delivered_at IS NULL AND c.dead_at IS NULL ORDER BY c.tenant LIMIT 1)
    UNION ALL
    SELECT n.tenant FROM waiting_tenants w CROSS JOIN LATERAL (
        SELECT c.tenant FROM dag_callbacks c
        WHERE c.delivered_at IS NULL AND c.dead_at IS NULL AND c.tenant > w.tenant
        ORDER BY c.tenant LIMIT 1) AS n
),
-- A tenant may hold no more of this relay than stays free: however much of it waits, there is room for others.
shares AS MATERIALIZED (
    SELECT w.tenant, coalesce(s.sending, 0) AS sending, coalesce(s.first_endpoint, '') AS first_endpoint,
           (:limit::integer + 1 - coalesce(s.sending, 0)) / 2 AS room
    FROM waiting_tenants w
    LEFT JOIN rows(share: tenant text, sending integer, first_endpoint text) AS s ON s.tenant = w.tenant
),
waiting (tenant, endpoint, step) AS (
    SELECT s.tenant, n.endpoint, 1 FROM shares s CROSS JOIN LATERAL (
        SELECT c.endpoint FROM dag_callbacks c
        WHERE c.tenant = s.tenant AND c.delivered_at IS NULL AND c.dead_at IS NULL AND c.endpoint >= s.first_endpoint
        ORDER BY c.endpoint LIMIT 1) AS n
    WHERE s.room > 0
    UNION ALL
    SELECT w.tenant, n.endpoint, w.step + 1 FROM waiting w CROSS JOIN LATERAL (
        SELECT c.endpoint FROM dag_callbacks c
        WHERE c.tenant = w.tenant AND c.delivered_at IS NULL AND c.dead_at IS NULL AND c.endpoint > w.endpoint
        ORDER BY c.endpoint LIMIT 1) AS n
    WHERE w.step < :endpoints_per_tenant
),
unpaused_endpoints AS MATERIALIZED (
    SELECT w.tenant, w.endpoint, s.failures, s.open_at,
           CASE WHEN s.failures >= :failing THEN 1 ELSE :per_endpoint::integer END
               - (SELECT count(*) FROM dag_callbacks l
                  WHERE l.tenant = w.tenant AND l.endpoint = w.endpoint AND l.lease_token IS NOT NULL
                    AND l.leased_until > (SELECT at FROM now))::integer AS room
    FROM waiting w
    LEFT JOIN dag_external_services s ON s.tenant = w.tenant AND s.endpoint = w.endpoint
    WHERE s.paused_at IS NULL
)

-- name: callback
-- The columns of a callback, `c`, that are shown.
c.seq, c.id::text AS id, c.tenant, c.request_id::text AS request_id, c.job_id::text AS job_id, c.run, c.state, c.url, c.endpoint,
       c.attempts, c.last_status, c.last_error, c.dead_reason,
       extract(epoch FROM c.occurred_at)::float8 AS occurred_at,
       extract(epoch FROM c.next_attempt_at)::float8 AS next_attempt_at,
       extract(epoch FROM c.last_attempt_at)::float8 AS last_attempt_at,
       extract(epoch FROM c.delivered_at)::float8 AS delivered_at, extract(epoch FROM c.dead_at)::float8 AS dead_at

-- name: signing_secret
-- The columns of a signing secret that are shown: not the secret.
secret_id, tenant, kind, public_key, key_set::text AS key_set, extract(epoch FROM created_at)::float8 AS created_at, created_by,
       extract(epoch FROM expires_at)::float8 AS expires_at, extract(epoch FROM revoked_at)::float8 AS revoked_at

-- name: audit_if_changed
-- The end of a statement about callbacks, before its SELECT: its entries in the audit trail, unless nothing changed.
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''),
           details::jsonb || jsonb_build_object('count', (SELECT count(*) FROM changed))
    FROM entries WHERE EXISTS (SELECT FROM changed)
)

-- name: replayable
-- Whether a callback, `c`, may be sent again and matches.
(c.delivered_at IS NOT NULL OR c.dead_at IS NOT NULL)
      AND (:id::text IS NULL OR c.id = :id::text::uuid)
      AND (:status::text IS NULL OR (:status::text = 'delivered') = (c.delivered_at IS NOT NULL))
      AND (:endpoint::text IS NULL OR c.endpoint = :endpoint::text)
      AND (:tenant::text IS NULL OR c.tenant = :tenant::text)
      AND (:subject::text IS NULL OR c.subject = :subject::text)
      AND (:since::float8 IS NULL OR c.created_at >= to_timestamp(:since::float8))
      AND (:until::float8 IS NULL OR c.created_at < to_timestamp(:until::float8))

-- name: recoverable
-- Whether a callback, `c`, is sent again when its endpoint, `b`, is resumed.
c.tenant = b.tenant AND c.endpoint = b.endpoint AND c.delivered_at IS NULL AND c.lease_token IS NULL
      -- What is to be sent later, as that of a sandbox, was never tried.
      AND (c.dead_at >= b.failing_since OR (c.dead_at IS NULL AND (c.attempts > 0 OR c.is_parked)))
