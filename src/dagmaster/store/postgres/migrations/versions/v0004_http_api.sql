-- Only additions: services of versions 0002 and 0003 continue to run on this schema, and 0003 starts on it.

-- Callers of the HTTP API ----------------------------------------------------------------------------------------------

-- Only the digest of a key is stored. `name` is the submitter and sender of what the key is used for.
CREATE TABLE dag_api_keys (
    key_id       text PRIMARY KEY,
    digest       text NOT NULL UNIQUE,
    name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
    scopes       text[] NOT NULL CHECK (cardinality(scopes) >= 1
                                        AND scopes <@ ARRAY['submit', 'read', 'operate', 'work', 'admin']),
    created_at   timestamptz NOT NULL,
    created_by   text NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
);

-- Who changed what. Changes of jobs are in their own log (dag_job_events), too; those of keys and workflows only here.
CREATE TABLE dag_audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock(),
    actor       text COLLATE "C" NOT NULL,
    action      text COLLATE "C" NOT NULL,
    object_kind text COLLATE "C" NOT NULL,
    object_id   text COLLATE "C" NOT NULL,
    request_id  text,
    details     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX dag_audit_object ON dag_audit (object_kind, object_id, id);
CREATE INDEX dag_audit_actor ON dag_audit (actor, id);
CREATE INDEX dag_audit_at ON dag_audit USING brin (at) WITH (pages_per_range = 32, autosummarize = on);

-- No role has a grant to change it. The trigger is for servers on which one user owns everything, as the embedded one.
CREATE FUNCTION dag_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'dag_audit is append-only: % is not allowed', TG_OP USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER dag_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON dag_audit
    FOR EACH STATEMENT EXECUTE FUNCTION dag_audit_is_append_only();

-- Jobs -----------------------------------------------------------------------------------------------------------------

-- `trace_parent`: the W3C trace context of the submit, which its tasks continue. `is_hidden`: not in lists, as the job
-- that tests a handler. Neither is written by a turn, and neither has an index: a turn stays a HOT update.
ALTER TABLE dag_jobs
    ADD COLUMN trace_parent text CHECK (length(trace_parent) <= 128),
    ADD COLUMN is_hidden boolean NOT NULL DEFAULT false;

-- Handlers -------------------------------------------------------------------------------------------------------------

-- What workers publish about their handlers, so that a server without their code can validate. Which worker has which
-- version now is in dag_workers.handlers; a row here stays when they have stopped. Workers with other code under the
-- same version replace each other's row.
CREATE TABLE dag_handlers (
    name         text COLLATE "C" NOT NULL,
    version      text COLLATE "C" NOT NULL,
    -- params and output as JSON Schema, description, queue, timeout, retry, aliases
    definition   jsonb NOT NULL,
    content_hash text NOT NULL,
    worker_id    bigint NOT NULL,
    published_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    PRIMARY KEY (name, version)
);

-- Metrics --------------------------------------------------------------------------------------------------------------

-- Roll-ups of finished jobs, written by a chore, never by a turn. They are sums: a chore adds what finished since
-- dag_metric_watermarks, a reader adds what finished later from dag_jobs, and all of it can be built again from
-- dag_jobs and dag_node_states. They stay when jobs are deleted.

-- A sparse histogram of durations for each hour. `node_id` is '' for the job as a whole; children of a fan-out count for
-- the fan-out. `bin` is ceil(ln(milliseconds) / ln(1.02)), 0 up to 1 ms, so that the middle of a bin is at most 1 % away
-- from every duration in it, and -1 for what never started. Counts and averages are sums over the bins.
CREATE TABLE dag_metric_durations (
    hour        timestamptz NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    node_id     text COLLATE "C" NOT NULL,
    status      text NOT NULL CHECK (status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')),
    bin         smallint NOT NULL CHECK (bin >= -1),
    count       bigint NOT NULL CHECK (count > 0),
    seconds     float8 NOT NULL,
    PRIMARY KEY (workflow_id, node_id, hour, status, bin)
);

-- Failures by message, with what differs from job to job (ids, numbers, paths) replaced.
CREATE TABLE dag_metric_failures (
    hour        timestamptz NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    node_id     text COLLATE "C" NOT NULL,
    message     text COLLATE "C" NOT NULL CHECK (length(message) <= 500),
    count       bigint NOT NULL CHECK (count > 0),
    -- An example, and when the last one failed.
    job_id      bigint NOT NULL,
    last_at     timestamptz NOT NULL,
    PRIMARY KEY (hour, workflow_id, node_id, message)
);

-- Jobs for each minute: submitted in it, finished in it.
CREATE TABLE dag_metric_throughput (
    minute      timestamptz NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    submitted   bigint NOT NULL DEFAULT 0,
    completed   bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    cancelled   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (minute, workflow_id)
);

-- Up to when each roll-up is complete.
CREATE TABLE dag_metric_watermarks (
    name  text PRIMARY KEY,
    until timestamptz NOT NULL
);

-- Roles ----------------------------------------------------------------------------------------------------------------

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_gateway') THEN
        RETURN;
    END IF;
    GRANT SELECT, INSERT, UPDATE, DELETE ON dag_api_keys, dag_handlers, dag_metric_durations, dag_metric_failures,
        dag_metric_throughput, dag_metric_watermarks TO dagmaster_orchestrator;
    GRANT SELECT, INSERT ON dag_audit TO dagmaster_orchestrator;
    GRANT SELECT, INSERT, UPDATE ON dag_handlers TO dagmaster_worker;
    GRANT SELECT (trace_parent) ON dag_jobs TO dagmaster_worker;
END $$;

-- The oldest code that can use this schema.
CREATE OR REPLACE FUNCTION dag_compatible_from() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '0002' $$;
