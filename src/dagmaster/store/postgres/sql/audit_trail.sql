-- The audit trail. It is append-only. Changes of jobs and keys store their entries in their own statements.

-- name: append
-- Store entries.
INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb
FROM unnest(:actors::text[], :actions::text[], :object_kinds::text[], :object_ids::text[], :request_ids::text[],
            :details::text[]) AS entry (actor, action, object_kind, object_id, request_id, details)

-- name: entries
-- Entries that match, newest first.
SELECT id, extract(epoch FROM at)::float8 AS at, actor, action, object_kind, object_id, request_id, details
FROM dag_audit
WHERE (:actor::text IS NULL OR actor = :actor)
  AND (:action::text IS NULL OR action = :action)
  AND (:object_kind::text IS NULL OR object_kind = :object_kind)
  AND (:object_id::text IS NULL OR object_id = :object_id)
  AND (:before::bigint IS NULL OR id < :before)
ORDER BY id DESC
LIMIT :limit
