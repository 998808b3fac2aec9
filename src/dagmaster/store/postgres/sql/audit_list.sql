-- The parts of the query for entries of the audit trail. As with jobs, a query has only the conditions that are set, so
-- that it can use the index of actors or of objects (ADR 0017).

-- name: page
-- Entries that match, newest first.
SELECT id, extract(epoch FROM at)::float8 AS at, actor, action, object_kind, object_id, request_id, details
FROM dag_audit WHERE {conditions} ORDER BY id DESC LIMIT :limit

-- name: actor
-- Who made the change.
actor = :actor

-- name: action
-- What was done.
action = :action

-- name: object_kind
-- What kind of object was changed.
object_kind = :object_kind

-- name: object_id
-- Which object was changed.
object_id = :object_id

-- name: before
-- After the entries of the page before.
id < :before
