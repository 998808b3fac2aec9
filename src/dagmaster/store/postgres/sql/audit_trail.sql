-- The audit trail. It is append-only. Changes of jobs and keys store their entries in their own statements.

-- name: append
-- Store entries.
WITH {@audit_entries}
INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb FROM entries
