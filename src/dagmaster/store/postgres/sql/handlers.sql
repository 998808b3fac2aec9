-- The statements by which workers publish their handlers.

-- name: unpublished_handlers
-- The handlers whose definition is not published, or is another one.
SELECT n.name, n.version
FROM unnest(:names::text[], :versions::text[], :hashes::text[]) AS n (name, version, content_hash)
LEFT JOIN LATERAL (SELECT h.content_hash FROM dag_handlers h
                   WHERE h.name = n.name AND h.version = n.version LIMIT 1) h ON true
WHERE h.content_hash IS DISTINCT FROM n.content_hash

-- name: publish_handlers
-- Publish the definitions of handlers, in the order of their keys, so that no two workers deadlock.
INSERT INTO dag_handlers (name, version, definition, content_hash, worker_id, published_at)
SELECT n.name, n.version, n.definition::json, n.content_hash, :worker_id, clock()
FROM unnest(:names::text[], :versions::text[], :definitions::text[], :hashes::text[])
     AS n (name, version, definition, content_hash)
ON CONFLICT (name, version) DO UPDATE
SET definition = excluded.definition, content_hash = excluded.content_hash, worker_id = excluded.worker_id,
    published_at = excluded.published_at
WHERE dag_handlers.content_hash <> excluded.content_hash

-- name: publish_new_handlers
-- The same for a worker with the role dagmaster_worker: only handlers that it serves, and only versions that are not
-- published yet. To change one is for those who may change the table.
INSERT INTO dag_handlers (name, version, definition, content_hash, worker_id, published_at)
SELECT n.name, n.version, n.definition::json, n.content_hash, :worker_id, clock()
FROM unnest(:names::text[], :versions::text[], :definitions::text[], :hashes::text[])
     AS n (name, version, definition, content_hash)
WHERE EXISTS (SELECT FROM dag_workers w WHERE w.worker_id = :worker_id AND w.handlers ->> n.name = n.version)
ON CONFLICT (name, version) DO NOTHING
