-- API keys. Only digests are stored.

-- name: add
-- Store a key.
INSERT INTO dag_api_keys (key_id, digest, name, scopes, created_at, created_by, expires_at, queues, handlers, workflows,
                          is_own, is_local, is_sandbox, tenant)
VALUES (:key_id, :digest, :name, string_to_array(:scopes, ','), clock(), :created_by, to_timestamp(:expires_at::float8),
        :queues::text[], :handlers::text[], :workflows::text[], :is_own, :is_local, :is_sandbox, :tenant)

-- name: find
-- The key with a digest, valid or not; a narrowed one has it with a prefix, which older versions do not ask for.
SELECT {@api_key}
FROM dag_api_keys WHERE digest = ANY(ARRAY[:digest::text, 'narrowed:' || :digest::text, 'sandbox:' || :digest::text])

-- name: all
-- All keys, newest first.
SELECT {@api_key}
FROM dag_api_keys ORDER BY created_at DESC, key_id

-- name: revoke
-- Revoke a key, with its audit entry. One that is revoked already keeps its time.
WITH revoked AS (
    UPDATE dag_api_keys SET revoked_at = coalesce(revoked_at, clock()) WHERE key_id = :key_id RETURNING *
),
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''),
           details::jsonb || jsonb_build_object('name', revoked.name)
    FROM revoked CROSS JOIN entries
)
SELECT {@api_key}
FROM revoked

-- name: expire
-- Let a key expire at a time, unless it expires before.
UPDATE dag_api_keys SET expires_at = least(expires_at, to_timestamp(:expires_at::float8)) WHERE key_id = :key_id

-- name: mark_used
-- Record that keys were used.
UPDATE dag_api_keys SET last_used_at = clock() WHERE key_id = ANY(:key_ids::text[])

-- name: start_session
-- Store a session of a browser, or a link; remove some that expired a day ago.
WITH expired AS (
    DELETE FROM dag_browser_sessions WHERE session_id = ANY(ARRAY(
        SELECT s.session_id FROM dag_browser_sessions s WHERE s.expires_at < clock() - interval '1 day'
        ORDER BY s.expires_at LIMIT 100))
)
INSERT INTO dag_browser_sessions (session_id, digest, is_link, key_id, name, namespace, scopes, tenant, created_at,
                                  expires_at)
VALUES (:session_id, :digest, :is_link, :key_id, :name, :namespace, string_to_array(:scopes, ','), :tenant, clock(),
        to_timestamp(:expires_at::float8))

-- name: find_session
-- The session with a digest, valid or not, with the key that it was started with.
SELECT {@browser_session}, to_json(k) AS key, extract(epoch FROM clock())::float8 AS now
FROM dag_browser_sessions s LEFT JOIN LATERAL (SELECT {@api_key} FROM dag_api_keys WHERE key_id = s.key_id LIMIT 1) k ON true
WHERE s.digest = :digest AND NOT s.is_link

-- name: take_link
-- End a link that was not used and has not expired.
UPDATE dag_browser_sessions s SET ended_at = clock()
WHERE s.digest = :digest AND s.is_link AND s.ended_at IS NULL AND s.expires_at > clock()
RETURNING {@browser_session}, (SELECT to_json(k) FROM (SELECT {@api_key} FROM dag_api_keys WHERE key_id = s.key_id) k) AS key

-- name: sessions
-- The sessions that have neither ended nor expired, newest first.
SELECT {@browser_session}, to_json(k) AS key
FROM dag_browser_sessions s LEFT JOIN LATERAL (SELECT {@api_key} FROM dag_api_keys WHERE key_id = s.key_id LIMIT 1) k ON true
WHERE NOT s.is_link AND s.ended_at IS NULL AND s.expires_at > clock()
ORDER BY s.created_at DESC, s.session_id
LIMIT 1000

-- name: end_session
-- End a session, with its audit entry. One that has ended keeps its time.
WITH ended AS (
    UPDATE dag_browser_sessions SET ended_at = coalesce(ended_at, clock())
    WHERE session_id = :session_id AND NOT is_link RETURNING *
),
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''),
           details::jsonb || jsonb_build_object('name', ended.name)
    FROM ended CROSS JOIN entries
)
SELECT {@browser_session}, NULL AS key FROM ended s
