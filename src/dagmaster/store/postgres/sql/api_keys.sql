-- API keys. Only digests are stored.

-- name: add
-- Store a key.
INSERT INTO dag_api_keys (key_id, digest, name, scopes, created_at, created_by, expires_at)
VALUES (:key_id, :digest, :name, string_to_array(:scopes, ','), clock(), :created_by, to_timestamp(:expires_at::float8))

-- name: find
-- The key with a digest, valid or not.
SELECT key_id, name, array_to_string(scopes, ',') AS scopes, extract(epoch FROM created_at)::float8 AS created_at, created_by,
       extract(epoch FROM expires_at)::float8 AS expires_at, extract(epoch FROM revoked_at)::float8 AS revoked_at,
       extract(epoch FROM last_used_at)::float8 AS last_used_at, extract(epoch FROM clock())::float8 AS now
FROM dag_api_keys WHERE digest = :digest

-- name: all
-- All keys, newest first.
SELECT key_id, name, array_to_string(scopes, ',') AS scopes, extract(epoch FROM created_at)::float8 AS created_at, created_by,
       extract(epoch FROM expires_at)::float8 AS expires_at, extract(epoch FROM revoked_at)::float8 AS revoked_at,
       extract(epoch FROM last_used_at)::float8 AS last_used_at, extract(epoch FROM clock())::float8 AS now
FROM dag_api_keys ORDER BY created_at DESC, key_id

-- name: revoke
-- Revoke a key, with its audit entry. One that is revoked already keeps its time.
WITH revoked AS (
    UPDATE dag_api_keys SET revoked_at = coalesce(revoked_at, clock()) WHERE key_id = :key_id RETURNING *
),
entries AS (
    SELECT * FROM unnest(:actors::text[], :actions::text[], :object_kinds::text[], :object_ids::text[],
                         :request_ids::text[], :details::text[])
         AS e (actor, action, object_kind, object_id, request_id, details)
),
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''),
           details::jsonb || jsonb_build_object('name', revoked.name)
    FROM revoked CROSS JOIN entries
)
SELECT key_id, name, array_to_string(scopes, ',') AS scopes, extract(epoch FROM created_at)::float8 AS created_at, created_by,
       extract(epoch FROM expires_at)::float8 AS expires_at, extract(epoch FROM revoked_at)::float8 AS revoked_at,
       extract(epoch FROM last_used_at)::float8 AS last_used_at, extract(epoch FROM clock())::float8 AS now
FROM revoked

-- name: expire
-- Let a key expire at a time, unless it expires before.
UPDATE dag_api_keys SET expires_at = least(expires_at, to_timestamp(:expires_at::float8)) WHERE key_id = :key_id

-- name: mark_used
-- Record that keys were used.
UPDATE dag_api_keys SET last_used_at = clock() WHERE key_id = ANY(:key_ids::text[])
