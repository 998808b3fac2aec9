-- The contracts of handlers: published by workers, changed and trusted by administrators, collected by a chore.

-- name: unpublished_handlers
-- The handlers whose definition is not published by the installation, or is another one.
SELECT n.name, n.version
FROM unnest(:names::text[], :versions::text[], :hashes::text[]) AS n (name, version, content_hash)
LEFT JOIN LATERAL (SELECT h.content_hash FROM dag_handlers h
                   WHERE h.name = n.name AND h.version = n.version AND h.owner = 'installation' LIMIT 1) h ON true
WHERE h.content_hash IS DISTINCT FROM n.content_hash

-- name: publish_handlers
-- Publish the definitions of the installation's handlers, in the order of their keys, so that no two workers deadlock. It
-- takes over what a caller had published.
INSERT INTO dag_handlers (name, version, definition, content_hash, worker_id, published_at)
SELECT n.name, n.version, n.definition::json, n.content_hash, :worker_id, clock()
FROM unnest(:names::text[], :versions::text[], :definitions::text[], :hashes::text[])
     AS n (name, version, definition, content_hash)
ON CONFLICT (name, version, tenant) DO UPDATE
SET definition = excluded.definition, content_hash = excluded.content_hash, worker_id = excluded.worker_id,
    published_at = excluded.published_at, owner = excluded.owner, trusted_at = NULL, replaced = NULL
WHERE dag_handlers.content_hash <> excluded.content_hash OR dag_handlers.owner <> excluded.owner

-- name: publish_new_handlers
-- The same for a worker with the role dagmaster_worker: only handlers that it serves, and only versions that are not
-- published yet, of names and with aliases that are neither a caller's nor an alias of another handler. To change one, or
-- to take over what a caller has published, is for those who may change the table.
INSERT INTO dag_handlers (name, version, definition, content_hash, worker_id, published_at)
SELECT n.name, n.version, n.definition::json, n.content_hash, :worker_id, clock()
FROM unnest(:names::text[], :versions::text[], :definitions::text[], :hashes::text[])
     AS n (name, version, definition, content_hash)
WHERE EXISTS (SELECT FROM dag_workers w WHERE w.worker_id = :worker_id AND w.handlers ->> n.name = n.version)
  AND NOT EXISTS (
      SELECT FROM (SELECT n.name UNION SELECT jsonb_array_elements_text(dag_aliases(n.definition::json))) AS own (name)
      WHERE EXISTS (SELECT FROM dag_handlers h
                    WHERE h.name = own.name AND h.tenant = 'default' AND h.owner <> 'installation')
         OR EXISTS (SELECT FROM dag_names_of_alias(own.name) AS other (name) WHERE other.name <> n.name))
ON CONFLICT (name, version, tenant) DO NOTHING

-- name: lock_offers
-- Let offers of other workers wait until the end of the transaction: two callers must not both be the first of a name.
SELECT pg_advisory_xact_lock(hashtext('dagmaster handlers'))

-- name: offer_handlers
-- Publish the definitions that a caller may publish: of names that are its own, or nobody's. Those of others, of aliases of
-- the installation's, and of handlers that ship and that nobody has published yet (`reserved`) wait for an administrator,
-- unless the key names them. An owner that changes a contract loses the trust in it.
WITH offered AS (
    SELECT n.name, n.version, n.definition::json AS definition, n.content_hash, a.is_alias,
           NOT a.is_alias
           AND coalesce(o.owners <@ ARRAY[:actor::text], n.name <> ALL(:reserved::text[]) OR n.name = ANY(:named::text[]))
               AS is_open
    FROM unnest(:names::text[], :versions::text[], :definitions::text[], :hashes::text[])
         AS n (name, version, definition, content_hash)
    CROSS JOIN LATERAL (SELECT array_agg(h.owner) AS owners FROM dag_handlers h
                        WHERE h.name = n.name AND h.tenant IN ('default', dag_tenant_of(:actor::text))) o
    CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM dag_names_of_alias(n.name)) AS is_alias) a
),
published AS (
    INSERT INTO dag_handlers (name, version, definition, content_hash, worker_id, published_at, owner)
    SELECT name, version, definition, content_hash, 0, clock(), :actor::text
    FROM offered WHERE is_open
    ON CONFLICT (name, version, tenant) DO UPDATE
    SET definition = excluded.definition, content_hash = excluded.content_hash, published_at = excluded.published_at,
        trusted_at = NULL
    WHERE dag_handlers.content_hash <> excluded.content_hash AND dag_handlers.owner = excluded.owner
),
proposed AS (
    INSERT INTO dag_handler_changes (name, version, actor, definition, content_hash, proposed_at)
    SELECT name, version, :actor::text, definition, content_hash, clock()
    FROM offered f
    WHERE NOT is_open
      AND NOT (dag_may_have_handler(name, :actor::text, :named::text[])
               AND (is_alias OR EXISTS (SELECT FROM dag_handlers h
                                        WHERE h.name = f.name AND h.version = f.version
                                          AND h.tenant IN ('default', dag_tenant_of(:actor::text))
                                          AND h.content_hash = f.content_hash)))
    ON CONFLICT (name, actor, version) DO UPDATE
    SET definition = excluded.definition, content_hash = excluded.content_hash, proposed_at = excluded.proposed_at
    WHERE dag_handler_changes.content_hash <> excluded.content_hash
)
SELECT count(*) AS handlers FROM offered

-- name: admitted_handlers
-- The handlers among these that workers of a caller may have.
SELECT n.name FROM unnest(:names::text[]) AS n (name)
WHERE dag_may_have_handler(n.name, :actor::text, :named::text[])

-- name: refresh_handlers
-- The handlers that a worker may have now, stored with it: an administrator may have trusted some, or the installation
-- taken some over. No row: the worker has a connection, or was registered by an older version.
WITH admitted AS (
    SELECT w.handlers AS before,
           coalesce((SELECT jsonb_object_agg(o.key, o.value) FROM jsonb_each(w.offered -> 'handlers') o
                     WHERE dag_may_have_handler(o.key, w.offered ->> 'actor',
                                                ARRAY(SELECT jsonb_array_elements_text(w.offered -> 'named')))),
                    '{}') AS handlers
    FROM dag_workers w WHERE w.worker_id = :worker_id AND w.offered IS NOT NULL
),
changed AS (
    UPDATE dag_workers w SET handlers = a.handlers
    FROM admitted a WHERE w.worker_id = :worker_id AND a.handlers <> a.before
)
SELECT handlers FROM admitted

-- name: usage
-- How many live workers a key has, in how many queues, and how many handlers its caller has published or proposed.
SELECT (SELECT count(*) FROM dag_workers w WHERE w.registered_by = :key_id::text AND w.stopped_at IS NULL) AS workers,
       ARRAY(SELECT DISTINCT unnest(w.queues) FROM dag_workers w
             WHERE w.registered_by = :key_id::text AND w.stopped_at IS NULL) AS queues,
       ARRAY(SELECT h.name FROM dag_handlers h WHERE h.owner = :actor::text AND h.owner <> 'installation'
             UNION SELECT c.name FROM dag_handler_changes c WHERE c.actor = :actor::text) AS handlers

-- name: changes
-- The changes of contracts that wait for an administrator, of some names.
SELECT name, version, actor, definition, extract(epoch FROM proposed_at)::float8 AS proposed_at
FROM dag_handler_changes WHERE name = ANY(:names::text[]) ORDER BY name, actor, version

-- name: trust_caller
-- Let workers of a caller have a handler. A caller that owns the contract needs no trust to have it.
INSERT INTO dag_handler_trust (name, actor, trusted_by, trusted_at)
SELECT :name, :actor, :trusted_by, clock()
WHERE EXISTS (SELECT FROM dag_handlers
              WHERE name = :name AND owner <> :actor AND tenant IN ('default', dag_tenant_of(:actor)))
ON CONFLICT (name, actor) DO UPDATE SET trusted_by = excluded.trusted_by, trusted_at = excluded.trusted_at

-- name: accept_changes
-- Make the changes of a caller the contract. One of the installation stays the installation's; another one gets a new owner.
-- What they replace is kept, unless it is the caller's own.
WITH accepted AS (
    DELETE FROM dag_handler_changes WHERE name = :name AND actor = :actor RETURNING *
),
owner AS (
    SELECT CASE WHEN bool_or(owner = 'installation') AND dag_tenant_of(:actor::text) = 'default'
                THEN 'installation' ELSE :actor::text END AS name
    FROM dag_handlers WHERE name = :name
)
INSERT INTO dag_handlers AS h (name, version, definition, content_hash, worker_id, published_at, owner, trusted_at, replaced)
SELECT a.name, a.version, a.definition, a.content_hash, 0, clock(), owner.name, clock(), json_build_object('by', :actor::text)
FROM accepted a CROSS JOIN owner
ON CONFLICT (name, version, tenant) DO UPDATE
SET definition = excluded.definition, content_hash = excluded.content_hash, published_at = excluded.published_at,
    owner = excluded.owner, trusted_at = excluded.trusted_at, replaced = {@replaced_contract}

-- name: drop_alias_changes
-- Remove what a caller proposed of the aliases of a handler: an alias has no contract.
DELETE FROM dag_handler_changes c
WHERE c.actor = :actor AND c.name <> :name AND :name IN (SELECT dag_names_of_alias(c.name))

-- name: trust_contract
-- Trust the contract that a caller owns, or owns now because its change was accepted.
UPDATE dag_handlers h
SET owner = :actor, trusted_at = coalesce(h.trusted_at, clock()), replaced = {@replaced_contract}
WHERE h.name = :name AND h.owner <> 'installation' AND h.tenant = dag_tenant_of(:actor)
  AND EXISTS (SELECT FROM dag_handlers o WHERE o.name = :name AND o.owner = :actor)

-- name: distrust
-- Remove what a caller has of a handler: the trust, its changes that wait, and what it published of the contract. What that
-- had replaced comes back; what of the caller's another one has replaced does not any more.
WITH trust AS (DELETE FROM dag_handler_trust WHERE name = :name AND actor = :actor RETURNING 1),
changes AS (DELETE FROM dag_handler_changes WHERE name = :name AND actor = :actor RETURNING 1),
contracts AS (
    SELECT h.version, h.replaced ->> 'by' IS NOT DISTINCT FROM :actor::text AS is_by,
           h.replaced ->> 'owner' AS former, h.owner = :actor::text AND h.owner <> 'installation' AS is_own
    FROM dag_handlers h WHERE h.name = :name
),
restored AS (
    UPDATE dag_handlers h
    SET owner = c.former, definition = h.replaced -> 'definition', content_hash = h.replaced ->> 'content_hash',
        published_at = (h.replaced ->> 'published_at')::timestamptz,
        trusted_at = (h.replaced ->> 'trusted_at')::timestamptz, replaced = NULL
    FROM contracts c WHERE h.name = :name AND h.version = c.version AND c.is_by AND c.former IS NOT NULL
    RETURNING 1
),
forgotten AS (
    UPDATE dag_handlers h SET replaced = json_build_object('by', h.replaced ->> 'by')
    FROM contracts c WHERE h.name = :name AND h.version = c.version AND NOT c.is_by AND c.former = :actor::text
    RETURNING 1
),
removed AS (
    DELETE FROM dag_handlers h
    USING contracts c
    WHERE h.name = :name AND h.version = c.version AND (c.is_own OR c.is_by) AND NOT (c.is_by AND c.former IS NOT NULL)
    RETURNING 1
)
SELECT (SELECT count(*) FROM trust) + (SELECT count(*) FROM changes) + (SELECT count(*) FROM removed) AS removed,
       (SELECT count(*) FROM restored) AS restored, (SELECT count(*) FROM forgotten) AS forgotten

-- name: collect
-- Remove contracts and changes of callers that no live worker has offered for some time, that no administrator trusts, and
-- that no published workflow may refer to: a graph that has the name anywhere keeps it. One whose name is an alias of the
-- installation's is not used any more.
WITH live AS (
    SELECT DISTINCT h.name FROM dag_workers w CROSS JOIN LATERAL jsonb_object_keys(w.offered -> 'handlers') AS h (name)
    WHERE w.stopped_at IS NULL AND w.offered IS NOT NULL
),
unused AS (
    SELECT h.name, h.version, h.tenant
    FROM dag_handlers h
    WHERE h.owner <> 'installation' AND h.trusted_at IS NULL
      AND h.published_at < clock() - make_interval(secs => :seconds)
      AND (EXISTS (SELECT FROM dag_names_of_alias(h.name))
           OR (h.name NOT IN (SELECT name FROM live)
               AND NOT EXISTS (SELECT FROM dag_workflows v JOIN dag_graphs g ON g.content_hash = v.content_hash
                               WHERE strpos(g.definition::text, to_json(h.name)::text) > 0)))
    ORDER BY h.name, h.version
    LIMIT :limit::bigint
),
contracts AS (
    DELETE FROM dag_handlers h USING unused u
    WHERE h.name = u.name AND h.version = u.version AND h.tenant = u.tenant RETURNING 1
),
changes AS (
    DELETE FROM dag_handler_changes c
    WHERE (c.name, c.actor, c.version) IN (
        SELECT o.name, o.actor, o.version FROM dag_handler_changes o
        WHERE o.proposed_at < clock() - make_interval(secs => :seconds) AND o.name NOT IN (SELECT name FROM live)
        ORDER BY o.name, o.actor, o.version
        LIMIT :limit::bigint)
    RETURNING 1
)
SELECT (SELECT count(*) FROM contracts) + (SELECT count(*) FROM changes) AS removed
