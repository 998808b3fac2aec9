-- API keys. Only digests are stored.

-- name: add
-- Store a key.
INSERT INTO dag_api_keys (key_id, digest, name, scopes, created_at, created_by, expires_at)
VALUES (:key_id, :digest, :name, string_to_array(:scopes, ','), clock(), :created_by, to_timestamp(:expires_at::float8))

-- name: find
-- The key with a digest, valid or not.
SELECT {@api_key}
FROM dag_api_keys WHERE digest = :digest

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
