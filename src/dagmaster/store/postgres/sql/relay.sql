-- What relays do: hold callbacks that are due, and store what came of sending them.

-- name: claim
-- Hold callbacks that are due: of a tenant its share, of an endpoint as many as may be sent at once, of a subject the oldest.
-- Others are parked. The first columns: where the walk over the endpoints of tenants goes on that have more of them.
WITH RECURSIVE
{@waiting_endpoints},
candidates AS (
    SELECT d.id, e.failures, e.lot, s.sending + row_number() OVER (PARTITION BY e.tenant ORDER BY d.number, e.lot) AS level
    FROM (SELECT o.*, random() AS lot FROM unpaused_endpoints o
          WHERE o.room > 0 AND (o.open_at IS NULL OR o.open_at <= (SELECT at FROM now))) AS e
    JOIN shares s ON s.tenant = e.tenant
    CROSS JOIN LATERAL (
        SELECT c.id, row_number() OVER (ORDER BY c.next_attempt_at, c.seq) AS number FROM dag_callbacks c
        WHERE c.tenant = e.tenant AND c.endpoint = e.endpoint AND c.delivered_at IS NULL AND c.dead_at IS NULL
          AND c.next_attempt_at <= (SELECT at FROM now)
        ORDER BY c.next_attempt_at, c.seq
        LIMIT least(e.room, s.room)
    ) AS d
),
-- The tenants that hold least come first.
ranked AS MATERIALIZED (
    SELECT c.id, c.failures, c.level, row_number() OVER (ORDER BY c.level, c.lot) AS place FROM candidates c
),
due AS MATERIALIZED (
    SELECT c.id, c.subject, c.seq, r.failures FROM ranked r JOIN dag_callbacks c ON c.id = r.id
    WHERE r.level + r.place <= :limit::integer + 1
      -- Another relay may have held it since it was read.
      AND c.delivered_at IS NULL AND c.dead_at IS NULL AND c.next_attempt_at <= (SELECT at FROM now)
    FOR UPDATE OF c SKIP LOCKED
),
held AS (
    UPDATE dag_callbacks AS c
    SET is_parked = h.next_attempt_at IS NOT NULL,
        lease_token = CASE WHEN h.next_attempt_at IS NULL THEN :lease_token::bigint END,
        leased_until = CASE WHEN h.next_attempt_at IS NULL THEN (SELECT at FROM now) + make_interval(secs => :lease_seconds) END,
        -- A parked one is brought forward when the earlier one is done; if that was missed, it looks again by itself.
        next_attempt_at = CASE WHEN h.next_attempt_at IS NULL THEN (SELECT at FROM now) + make_interval(secs => :lease_seconds)
                               ELSE greatest(h.next_attempt_at, (SELECT at FROM now) + make_interval(secs => 30)) END
    FROM due
    LEFT JOIN LATERAL (
        SELECT o.next_attempt_at FROM dag_callbacks o
        WHERE o.subject = due.subject AND o.seq < due.seq AND o.delivered_at IS NULL AND o.dead_at IS NULL
        ORDER BY o.seq LIMIT 1
    ) AS h ON true
    WHERE c.id = due.id
    RETURNING c.*, due.failures
)
SELECT cut.tenants, cut.endpoints, h.id::text AS id, h.lease_token, h.tenant, h.endpoint, h.url, h.request_id::text AS request_id, h.job_id::text AS job_id,
       h.run, h.state, h.reason, extract(epoch FROM h.occurred_at)::float8 AS occurred_at, h.attempts,
       coalesce(h.failures, 0) AS failures, r.result_key::text AS result_key, h.is_parked
FROM (SELECT array_agg(w.tenant) AS tenants, array_agg(w.endpoint) AS endpoints
      FROM waiting w WHERE w.step = :endpoints_per_tenant) AS cut
LEFT JOIN held h ON true
LEFT JOIN LATERAL (SELECT q.result_key FROM dag_api_requests q WHERE q.request_id = h.request_id LIMIT 1) AS r ON true
ORDER BY h.seq

-- name: next_due
-- Seconds until a callback can be claimed: when one is due, when its endpoint opens, or when a lease ends.
WITH RECURSIVE
{@waiting_endpoints}
SELECT extract(epoch FROM min(due.at) - (SELECT at FROM now))::float8 AS seconds
FROM unpaused_endpoints e
CROSS JOIN LATERAL (
    SELECT CASE WHEN e.room > 0
                THEN greatest(e.open_at, (SELECT c.next_attempt_at FROM dag_callbacks c
                                          WHERE c.tenant = e.tenant AND c.endpoint = e.endpoint
                                            AND c.delivered_at IS NULL AND c.dead_at IS NULL
                                          ORDER BY c.next_attempt_at LIMIT 1))
                ELSE (SELECT min(c.leased_until) FROM dag_callbacks c
                      WHERE c.tenant = e.tenant AND c.endpoint = e.endpoint AND c.lease_token IS NOT NULL) END AS at
) AS due

-- name: record
-- What came of attempts whose lease is held still.
UPDATE dag_callbacks AS c
SET attempts = c.attempts + (o.verdict <> 'postponed')::integer,
    last_attempt_at = now.at,
    last_status = o.status,
    last_error = nullif(o.error, ''),
    delivered_at = CASE WHEN o.verdict = 'delivered' THEN now.at END,
    dead_at = CASE WHEN o.verdict = 'dead' THEN now.at END,
    dead_reason = CASE WHEN o.verdict = 'dead' THEN o.dead_reason END,
    next_attempt_at = now.at + make_interval(secs => o.delay_seconds),
    lease_token = NULL,
    leased_until = NULL
FROM rows(outcome: id text, lease_token bigint, verdict text, status integer, error text, dead_reason text, delay_seconds float8) AS o
CROSS JOIN (SELECT clock() AS at) AS now
WHERE c.id = o.id::uuid AND c.lease_token = o.lease_token

-- name: unpark
-- Let the next state follow, where the one before is done. It comes after its commit is seen, so in its own statement.
UPDATE dag_callbacks AS c
SET next_attempt_at = clock(), is_parked = false
WHERE c.is_parked AND c.delivered_at IS NULL AND c.dead_at IS NULL
  AND c.subject = ANY(ARRAY(SELECT d.subject FROM dag_callbacks d
                            WHERE d.id = ANY(ARRAY(SELECT one::uuid FROM unnest(:ids::text[]) AS one))
                              AND (d.delivered_at IS NOT NULL OR d.dead_at IS NOT NULL)))
  AND NOT EXISTS (SELECT FROM dag_callbacks o WHERE o.subject = c.subject AND o.seq < c.seq
                                                AND o.delivered_at IS NULL AND o.dead_at IS NULL)

-- name: health
-- What attempts say about their endpoints. The failures of a batch count before its success.
INSERT INTO dag_external_services AS s (tenant, endpoint, failures, failing_since, last_error, last_attempt_at,
                                        last_delivered_at, open_at)
SELECT h.tenant, h.endpoint, CASE WHEN h.is_delivered THEN 0 ELSE h.failures END,
       CASE WHEN NOT h.is_delivered THEN now.at END, nullif(h.error, ''), now.at, CASE WHEN h.is_delivered THEN now.at END,
       CASE WHEN h.closed_seconds > 0 THEN now.at + make_interval(secs => h.closed_seconds) END
FROM rows(health: tenant text, endpoint text, is_delivered boolean, failures integer, error text, closed_seconds float8) AS h
CROSS JOIN (SELECT clock() AS at) AS now
ON CONFLICT (tenant, endpoint) DO UPDATE
SET failures = CASE WHEN excluded.failures = 0 THEN 0 ELSE s.failures + excluded.failures END,
    failing_since = CASE WHEN excluded.failures > 0 THEN coalesce(s.failing_since, excluded.failing_since) END,
    last_error = coalesce(excluded.last_error, s.last_error),
    last_attempt_at = excluded.last_attempt_at,
    last_delivered_at = coalesce(excluded.last_delivered_at, s.last_delivered_at),
    open_at = excluded.open_at

-- name: pause
-- Pause endpoints that are gone, or have failed for too long, with an entry in the audit trail.
WITH paused AS (
    UPDATE dag_external_services AS s
    SET paused_at = clock(), paused_by = 'relay', pause_reason = CASE WHEN p.is_gone THEN 'gone' ELSE 'failing' END
    FROM rows(failing: tenant text, endpoint text, is_gone boolean) AS p
    WHERE s.tenant = p.tenant AND s.endpoint = p.endpoint AND s.paused_at IS NULL
      AND (p.is_gone OR (s.failures >= :min_failures
                         AND s.failing_since <= (SELECT clock()) - make_interval(secs => :pause_seconds)))
    RETURNING s.tenant, s.endpoint, s.pause_reason, s.failing_since
),
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, details, tenant)
    SELECT 'relay', 'callback_endpoint.pause', 'callback_endpoint', left(endpoint, 300),
           jsonb_build_object('reason', pause_reason, 'failing_since', failing_since), tenant
    FROM paused
)
SELECT tenant, endpoint, pause_reason FROM paused

-- name: active_secrets
-- What callbacks of a tenant are signed with, newest first.
SELECT secret_id, kind, sealed::text AS sealed FROM dag_signing_secrets
WHERE tenant = :tenant AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock())
ORDER BY created_at DESC, secret_id

-- name: prune
-- Delete some callbacks that were delivered long ago.
WITH pruned AS (
    DELETE FROM dag_callbacks WHERE id = ANY(ARRAY(
        SELECT c.id FROM dag_callbacks c
        WHERE c.delivered_at < (SELECT clock()) - make_interval(secs => :seconds)
        ORDER BY c.delivered_at LIMIT 1000))
    RETURNING id
)
SELECT count(*) AS pruned FROM pruned
