-- Only additions: services of versions 0002 and 0003 continue to run on this schema, and 0003 starts on it.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

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
-- that tests a handler. A turn writes neither, and so stays a HOT update.
ALTER TABLE dag_jobs
    ADD COLUMN trace_parent text,
    ADD COLUMN is_hidden boolean NOT NULL DEFAULT false,
    -- Not validated: no row has a value yet, and reading all of them would stop every turn meanwhile.
    ADD CONSTRAINT dag_jobs_trace_parent_length CHECK (length(trace_parent) <= 128) NOT VALID;
-- Few jobs are hidden: what counts and lists leave out is found without reading all jobs.
CREATE INDEX dag_jobs_hidden ON dag_jobs (id) WHERE is_hidden;

-- Workers that speak HTTP ------------------------------------------------------------------------------------------------

-- The name of the key that registered a worker over HTTP, and that alone may act for it. NULL: a worker with a connection
-- to this database.
ALTER TABLE dag_workers ADD COLUMN registered_by text;

-- The results that such workers delivered, for some days: a result that is delivered again gets the same answer. Task ids are
-- ordered by time, so the oldest are the first of the key.
CREATE TABLE dag_task_receipts (
    task_id     bigint PRIMARY KEY,
    lease_token bigint NOT NULL,
    status      text NOT NULL CHECK (status IN ('COMPLETED', 'FAILED', 'RELEASED'))
);

-- With what lists ask, too: the jobs of an old version are found in the index alone (ADR 0017).
DROP INDEX dag_jobs_workflow;
CREATE INDEX dag_jobs_workflow ON dag_jobs (workflow_id COLLATE "C", id) INCLUDE (version, is_hidden);

-- Handlers -------------------------------------------------------------------------------------------------------------

-- What workers publish about their handlers, so that a server without their code can validate. Which worker has which
-- version now is in dag_workers.handlers; a row here stays when they have stopped. Workers with other code under the
-- same version replace each other's row.
CREATE TABLE dag_handlers (
    name         text COLLATE "C" NOT NULL,
    version      text COLLATE "C" NOT NULL,
    -- params and output as JSON Schema, description, queue, timeout, retry, aliases: see HandlerDefinition.
    definition   json NOT NULL,
    content_hash text NOT NULL,
    worker_id    bigint NOT NULL,
    published_at timestamptz NOT NULL,
    PRIMARY KEY (name, version)
);

-- Metrics --------------------------------------------------------------------------------------------------------------

-- Roll-ups of finished jobs. A turn that finishes a job queues it here; a chore of orchestrators deletes batches of rows
-- and adds them to the sums in the same transaction. So a job is counted exactly once, whenever its turn commits and
-- whatever the clocks show (ADR 0024). All of it can be built again from the rows of jobs. The sums stay when jobs are
-- deleted.
CREATE TABLE dag_metric_pending (
    job_id bigint NOT NULL,
    -- The run that finished: a row of an earlier run is not counted as the current one.
    run    integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
INSERT INTO dag_metric_pending (job_id, run) SELECT id, run FROM dag_jobs WHERE finished_at IS NOT NULL;

-- Sparse histograms of durations for each period of 6 hours. `bin` is ceil(ln(milliseconds) / ln(1.02)), 0 up to 1 ms, so that one
-- value of a bin is at most 1 % away from every duration in it, and -1 for what never started. Counts and averages are
-- sums over the bins.
CREATE TABLE dag_metric_jobs (
    period      timestamptz NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    status      text NOT NULL CHECK (status IN ('COMPLETED', 'FAILED', 'CANCELLED')),
    bin         smallint NOT NULL CHECK (bin >= -1),
    count       bigint NOT NULL CHECK (count > 0),
    seconds     float8 NOT NULL,
    PRIMARY KEY (period, workflow_id, status, bin)
);
-- Those of nodes, by the period in which their job finished. Children of a fan-out count for the fan-out.
CREATE TABLE dag_metric_nodes (
    workflow_id text COLLATE "C" NOT NULL,
    period      timestamptz NOT NULL,
    node_id     text COLLATE "C" NOT NULL,
    status      text NOT NULL CHECK (status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')),
    bin         smallint NOT NULL CHECK (bin >= -1),
    count       bigint NOT NULL CHECK (count > 0),
    seconds     float8 NOT NULL,
    retries     bigint NOT NULL,
    PRIMARY KEY (workflow_id, period, node_id, status, bin)
);

-- Failed jobs by the message of the error, with what differs from job to job (ids, numbers, paths) replaced.
CREATE TABLE dag_metric_failures (
    period      timestamptz NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    -- '' if no node caused the failure, as for a deadline.
    node_id     text COLLATE "C" NOT NULL,
    message     text COLLATE "C" NOT NULL CHECK (length(message) <= 300),
    count       bigint NOT NULL CHECK (count > 0),
    -- An example, and when the last one failed.
    job_id      bigint NOT NULL,
    last_at     timestamptz NOT NULL,
    PRIMARY KEY (period, workflow_id, node_id, message)
);

-- Jobs that finished in each minute. `seconds` is of completed jobs. Submitted jobs are counted from their ids, which
-- contain the time.
CREATE TABLE dag_metric_throughput (
    minute    timestamptz PRIMARY KEY,
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    seconds   float8 NOT NULL
);

-- When the last run of a job started, if it is not the first.
CREATE FUNCTION dag_resumed_at(job bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT max(e.at) FROM dagapp.dag_job_events e WHERE e.job_id = job AND e.type = 'JobResumed'
$$;
-- The same rules as in store/metric_rules.py.
CREATE FUNCTION dag_duration_bin(seconds float8) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN seconds IS NULL THEN -1 WHEN seconds <= 0.001 THEN 0
                ELSE ceil(ln(seconds * 1000) / ln(1.02::float8)) END::smallint
$$;
CREATE FUNCTION dag_failure_message(message text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left(regexp_replace(regexp_replace(regexp_replace(regexp_replace(message,
        '[A-Za-z][A-Za-z0-9+.-]*://[^ \t\n''"<>]+', '<uri>', 'g'),
        '(^|[ \t\n''"(=])/[^ \t\n''",;:)]+', '\1<path>', 'g'),
        '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|[0-9a-fA-F]{16,}', '<id>', 'g'),
        '[0-9]+([.][0-9]+)?', '<n>', 'g'), 300)
$$;

-- Roles ----------------------------------------------------------------------------------------------------------------

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_gateway') THEN
        RETURN;
    END IF;
    GRANT SELECT, INSERT, UPDATE, DELETE ON dag_api_keys, dag_task_receipts, dag_handlers, dag_metric_pending,
        dag_metric_jobs, dag_metric_nodes, dag_metric_failures, dag_metric_throughput TO dagmaster_orchestrator;
    -- Without id and at: a service cannot choose the place and the time of an entry.
    GRANT SELECT, INSERT (actor, action, object_kind, object_id, request_id, details) ON dag_audit
        TO dagmaster_orchestrator;
    GRANT SELECT, INSERT, UPDATE ON dag_handlers TO dagmaster_worker;
    GRANT SELECT (trace_parent) ON dag_jobs TO dagmaster_worker;
END $$;

-- The oldest code that can use this schema.
CREATE OR REPLACE FUNCTION dag_compatible_from() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '0002' $$;
