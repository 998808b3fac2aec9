-- Who may do what (ADR 0039, ADR 0040): contracts of handlers have owners, keys can be narrowed, sessions of browsers are
-- stored. Services of version 0010 continue to run on this schema: what their workers publish belongs to the installation,
-- and they reject narrowed keys, whose digests they do not find.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

-- Keys. The digest of a narrowed one begins with `narrowed:`. A local key acts for the user of this machine, whose name
-- has no namespace.
ALTER TABLE dag_api_keys
    ADD COLUMN queues text[] NOT NULL DEFAULT '{}',
    ADD COLUMN handlers text[] NOT NULL DEFAULT '{}',
    ADD COLUMN workflows text[] NOT NULL DEFAULT '{}',
    ADD COLUMN is_own boolean NOT NULL DEFAULT false,
    ADD COLUMN is_local boolean NOT NULL DEFAULT false,
    ADD CHECK ((cardinality(queues) + cardinality(handlers) + cardinality(workflows) > 0 OR is_own)
               = starts_with(digest, 'narrowed:'));
UPDATE dag_api_keys SET is_local = true WHERE created_by = 'dagmaster dev';

-- Sessions of browsers, and the links that start one. Only digests are stored. A session of a key ends with the key;
-- name, namespace and scopes are those of a token, whose issuer is not asked again.
CREATE TABLE dag_browser_sessions (
    session_id text PRIMARY KEY,
    digest     text NOT NULL UNIQUE,
    is_link    boolean NOT NULL,
    key_id     text NOT NULL,
    name       text NOT NULL,
    namespace  text NOT NULL,
    scopes     text[] NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    ended_at   timestamptz
);
CREATE INDEX dag_browser_sessions_expiry ON dag_browser_sessions (expires_at);

-- Handlers. The contract of a name belongs to the installation, if one of its rows does, else to the caller that published
-- it first. Contracts of before belong to the key whose worker published them, as far as that is known.
ALTER TABLE dag_handlers
    ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT 'installation',
    ADD COLUMN trusted_at timestamptz;
UPDATE dag_handlers h SET owner = CASE WHEN k.is_local THEN k.name ELSE 'key:' || k.name END
FROM dag_workers w JOIN dag_api_keys k ON k.key_id = w.registered_by
WHERE w.worker_id = h.worker_id;
CREATE INDEX dag_handlers_owner ON dag_handlers (owner) WHERE owner <> 'installation';

-- Contracts that others than the owner published: they wait for an administrator.
CREATE TABLE dag_handler_changes (
    name         text COLLATE "C" NOT NULL,
    version      text COLLATE "C" NOT NULL,
    actor        text COLLATE "C" NOT NULL,
    definition   json NOT NULL,
    content_hash text NOT NULL,
    proposed_at  timestamptz NOT NULL,
    PRIMARY KEY (name, actor, version)
);
CREATE INDEX dag_handler_changes_actor ON dag_handler_changes (actor);

-- Callers whose workers may have a handler that is not theirs.
CREATE TABLE dag_handler_trust (
    name       text COLLATE "C" NOT NULL,
    actor      text COLLATE "C" NOT NULL,
    trusted_by text NOT NULL,
    trusted_at timestamptz NOT NULL,
    PRIMARY KEY (name, actor)
);

-- What a worker that speaks HTTP offers, for which caller: {actor, named, handlers}, where `named` are the handlers to which
-- its key is narrowed. The column `handlers` has those of them that it may have. NULL: a worker with a connection.
ALTER TABLE dag_workers ADD COLUMN offered jsonb;

-- Whether workers of a caller may have a handler: an administrator named it (in the key, or by trust), or it is the caller's
-- own. A name with a dot is a function of the installation's code: no caller owns it without an administrator.
CREATE FUNCTION dag_may_have_handler(handler text, caller text, named text[]) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT handler = ANY(named)
        OR EXISTS (SELECT FROM dagapp.dag_handler_trust t WHERE t.name = handler AND t.actor = caller)
        OR coalesce((SELECT bool_and(h.owner = caller AND (h.trusted_at IS NOT NULL OR strpos(handler, '.') = 0))
                     FROM dagapp.dag_handlers h WHERE h.name = handler), false)
$$;

-- A submitter has a namespace (`key:`) before its name of up to 64 characters.
ALTER TABLE dag_jobs DROP CONSTRAINT dag_jobs_submitted_by_check;
ALTER TABLE dag_jobs ADD CONSTRAINT dag_jobs_submitted_by_check CHECK (length(submitted_by) <= 80) NOT VALID;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_gateway') THEN
        RETURN;
    END IF;
    GRANT SELECT, INSERT, UPDATE, DELETE ON dag_browser_sessions, dag_handler_changes, dag_handler_trust
        TO dagmaster_orchestrator;
END $$;
