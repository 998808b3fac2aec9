-- Callbacks, endpoints and signing secrets as operators see and change them.

-- name: list
-- Callbacks that match, newest first.
SELECT {@callback}
FROM dag_callbacks c
WHERE (:before::bigint IS NULL OR c.seq < :before::bigint)
  AND (:status::text IS NULL
       OR :status = CASE WHEN c.delivered_at IS NOT NULL THEN 'delivered' WHEN c.dead_at IS NOT NULL THEN 'dead' ELSE 'waiting' END)
  AND (:endpoint::text IS NULL OR c.endpoint = :endpoint::text)
  AND (:tenant::text IS NULL OR c.tenant = :tenant::text)
  AND (:subject::text IS NULL OR c.subject = :subject::text)
  AND (:since::float8 IS NULL OR c.created_at >= to_timestamp(:since::float8))
  AND (:until::float8 IS NULL OR c.created_at < to_timestamp(:until::float8))
ORDER BY c.seq DESC
LIMIT :limit

-- name: find
-- A callback.
SELECT {@callback} FROM dag_callbacks c WHERE c.id = :id::text::uuid

-- name: replay
-- Send some callbacks again that do not wait, with their ids, oldest first. `position`: of the last one, if others may follow.
WITH chosen AS MATERIALIZED (
    SELECT c.id, c.seq FROM dag_callbacks c
    WHERE c.seq > coalesce(:after::bigint, 0) AND {@replayable}
    ORDER BY c.seq LIMIT :limit
),
last AS MATERIALIZED (SELECT max(seq) AS seq FROM chosen HAVING count(*) >= :limit),
changed AS (
    UPDATE dag_callbacks AS c
    SET delivered_at = NULL, dead_at = NULL, dead_reason = NULL, attempts = 0, next_attempt_at = clock(), is_parked = false
    FROM chosen WHERE c.id = chosen.id AND (c.delivered_at IS NOT NULL OR c.dead_at IS NOT NULL)
    RETURNING c.id
),
{@audit_if_changed}
SELECT (SELECT count(*) FROM changed) AS changed, (SELECT seq FROM last) AS position,
       (SELECT count(*) FROM (SELECT FROM last JOIN dag_callbacks c ON c.seq > last.seq WHERE {@replayable} LIMIT :max_left) AS l) AS left,
       pg_notify('dagmaster_callbacks', '')::text AS notified

-- name: endpoints
-- Endpoints with what waits for them, paused ones first.
WITH counts AS MATERIALIZED (
    SELECT c.tenant, c.endpoint, count(*) FILTER (WHERE c.delivered_at IS NULL AND c.dead_at IS NULL) AS waiting,
           count(*) FILTER (WHERE c.dead_at IS NOT NULL) AS dead
    FROM dag_callbacks c
    WHERE c.delivered_at IS NULL
      AND (:endpoint::text IS NULL OR c.endpoint = :endpoint::text) AND (:tenant::text IS NULL OR c.tenant = :tenant::text)
    GROUP BY c.tenant, c.endpoint
)
SELECT coalesce(s.tenant, c.tenant) AS tenant, coalesce(s.endpoint, c.endpoint) AS endpoint, coalesce(s.failures, 0) AS failures,
       extract(epoch FROM s.failing_since)::float8 AS failing_since, s.last_error,
       extract(epoch FROM s.last_attempt_at)::float8 AS last_attempt_at,
       extract(epoch FROM s.last_delivered_at)::float8 AS last_delivered_at,
       extract(epoch FROM s.paused_at)::float8 AS paused_at, s.paused_by, s.pause_reason,
       coalesce(c.waiting, 0) AS waiting, coalesce(c.dead, 0) AS dead
FROM (SELECT * FROM dag_external_services e
      WHERE (:endpoint::text IS NULL OR e.endpoint = :endpoint::text) AND (:tenant::text IS NULL OR e.tenant = :tenant::text)) AS s
FULL JOIN counts c ON c.tenant = s.tenant AND c.endpoint = s.endpoint
WHERE :is_paused::boolean IS NULL OR (s.paused_at IS NOT NULL) = :is_paused::boolean
ORDER BY s.paused_at IS NULL, 1, 2

-- name: pause
-- Send nothing more to endpoints.
WITH changed AS (
    INSERT INTO dag_external_services AS s (tenant, endpoint, paused_at, paused_by, pause_reason)
    SELECT known.tenant, known.endpoint, now.at, :by, 'operator'
    FROM (SELECT e.tenant, e.endpoint FROM dag_external_services e WHERE e.endpoint = :endpoint
          UNION SELECT c.tenant, c.endpoint FROM dag_callbacks c WHERE c.endpoint = :endpoint) AS known
    CROSS JOIN (SELECT clock() AS at) AS now
    WHERE :tenant::text IS NULL OR known.tenant = :tenant::text
    ON CONFLICT (tenant, endpoint) DO UPDATE
    SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
    WHERE s.paused_at IS NULL
    RETURNING s.tenant
),
{@audit_if_changed}
SELECT (SELECT count(*) FROM changed) AS changed

-- name: resume
-- Send to paused endpoints again: what waits now, and some of what died since they began to fail. They are paused until the last.
WITH before AS MATERIALIZED (
    SELECT s.tenant, s.endpoint, s.failing_since FROM dag_external_services s
    WHERE s.endpoint = :endpoint AND s.paused_at IS NOT NULL AND (:tenant::text IS NULL OR s.tenant = :tenant::text)
    FOR UPDATE
),
chosen AS MATERIALIZED (
    SELECT c.id FROM before b JOIN dag_callbacks c ON {@recoverable}
    LIMIT :limit
),
recovered AS (
    UPDATE dag_callbacks AS c
    SET dead_at = NULL, dead_reason = NULL, attempts = 0, next_attempt_at = least(c.next_attempt_at, clock()), is_parked = false
    FROM chosen WHERE c.id = chosen.id AND c.delivered_at IS NULL AND c.lease_token IS NULL
),
counts AS MATERIALIZED (
    SELECT (SELECT count(*) FROM chosen) AS chosen,
           (SELECT count(*) FROM (SELECT FROM before b JOIN dag_callbacks c ON {@recoverable} LIMIT :limit + :max_left) AS l) AS recoverable
),
changed AS (
    UPDATE dag_external_services AS s
    SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, failures = 0, failing_since = NULL, open_at = NULL
    FROM before b WHERE s.tenant = b.tenant AND s.endpoint = b.endpoint AND (SELECT recoverable = chosen FROM counts)
    RETURNING s.tenant
),
{@audit_if_changed}
SELECT (SELECT count(*) FROM changed) AS changed, c.chosen AS recovered, c.recoverable - c.chosen AS left,
       pg_notify('dagmaster_callbacks', '')::text AS notified
FROM counts c WHERE EXISTS (SELECT FROM before)

-- name: secrets
-- Signing secrets by tenant, newest first.
SELECT {@signing_secret}
FROM dag_signing_secrets
WHERE :tenant::text IS NULL OR tenant = :tenant::text
ORDER BY tenant, created_at DESC, secret_id

-- name: lock_secrets
-- Let changes of the secrets of a tenant wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended('dagmaster.signing_secrets.' || :tenant, 0))

-- name: add_secret
-- Store a secret, unless too many of its kind are active, or there is no such tenant; the active ones expire after an overlap.
WITH active AS MATERIALIZED (
    SELECT s.secret_id FROM dag_signing_secrets s
    WHERE s.tenant = :tenant AND s.kind = :kind AND s.revoked_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > clock())
),
changed AS (
    INSERT INTO dag_signing_secrets (secret_id, tenant, kind, sealed, public_key, key_set, created_by)
    SELECT :secret_id, :tenant, :kind, :sealed::text::json, :public_key,
           coalesce((SELECT k.key_set FROM dag_signing_secrets k WHERE k.tenant = :tenant LIMIT 1), gen_random_uuid()), :created_by
    WHERE (SELECT count(*) FROM active) < :max_secrets AND EXISTS (SELECT FROM dag_tenants t WHERE t.name = :tenant)
    RETURNING *
),
expiring AS (
    UPDATE dag_signing_secrets AS s
    SET expires_at = least(s.expires_at, clock() + make_interval(secs => :overlap_seconds))
    WHERE s.secret_id = ANY(ARRAY(SELECT secret_id FROM active)) AND EXISTS (SELECT FROM changed)
),
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb FROM entries
    WHERE EXISTS (SELECT FROM changed)
)
SELECT {@signing_secret} FROM changed

-- name: ensure_key_pair
-- Store a key pair for a tenant without an active secret.
INSERT INTO dag_signing_secrets (secret_id, tenant, kind, sealed, public_key, key_set, created_by)
SELECT :secret_id, :tenant, :kind, :sealed::text::json, :public_key,
       coalesce((SELECT k.key_set FROM dag_signing_secrets k WHERE k.tenant = :tenant LIMIT 1), gen_random_uuid()), :created_by
WHERE NOT EXISTS (SELECT FROM dag_signing_secrets s
                  WHERE s.tenant = :tenant AND s.revoked_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > clock()))

-- name: revoke_secret
-- Revoke a secret, with its audit entry. One that is revoked already keeps its time.
WITH changed AS (
    UPDATE dag_signing_secrets SET revoked_at = coalesce(revoked_at, clock()) WHERE secret_id = :secret_id RETURNING *
),
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb FROM entries
    WHERE EXISTS (SELECT FROM changed)
)
SELECT {@signing_secret} FROM changed

-- name: public_keys
-- The public keys of a set, or of the installation.
SELECT secret_id, public_key, extract(epoch FROM expires_at)::float8 AS expires_at
FROM dag_public_signing_keys(:key_set::text::uuid)
