-- The tables of runtime.md. Constraints state the invariants; the engine's transition table defines the transitions.

-- Volatile, like clock_timestamp(): then it is inlined into the statement. Called as a function it took 1.8 µs a row
-- instead of 0.15, twice a task (2026-11).
CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    -- The one place where SQL asks for the time. A test moves it with SET dagapp.clock_offset.
    SELECT clock_timestamp() + make_interval(secs => coalesce(nullif(current_setting('dagapp.clock_offset', true), ''), '0')::float8)
$$;

-- Definitions ---------------------------------------------------------------------------------------------------------

CREATE TABLE dag_graphs (
    content_hash text PRIMARY KEY,
    -- json, not jsonb: the order of nodes is part of the meaning.
    definition   json NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE dag_workflows (
    workflow_id  text NOT NULL CHECK (length(workflow_id) BETWEEN 1 AND 64),
    version      integer NOT NULL CHECK (version >= 1),
    content_hash text NOT NULL REFERENCES dag_graphs,
    is_active    boolean NOT NULL DEFAULT false,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workflow_id, version)
);
CREATE UNIQUE INDEX dag_workflows_one_active ON dag_workflows (workflow_id) WHERE is_active;

-- Services ------------------------------------------------------------------------------------------------------------

CREATE TABLE dag_orchestrators (
    owner_id     bigint PRIMARY KEY,
    host         text NOT NULL,
    pid          integer NOT NULL,
    version      text NOT NULL,
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    stopped_at   timestamptz,
    counters     jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

CREATE TABLE dag_workers (
    worker_id    bigint PRIMARY KEY,
    host         text NOT NULL,
    pid          integer NOT NULL,
    version      text NOT NULL,
    queues       text[] NOT NULL,
    concurrency  integer NOT NULL CHECK (concurrency >= 1),
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    stopped_at   timestamptz,
    counters     jsonb NOT NULL DEFAULT '{}',
    -- The version of each of its handlers, by name.
    handlers     jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

CREATE TABLE dag_leases (
    name       text PRIMARY KEY,
    holder     bigint NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Jobs ----------------------------------------------------------------------------------------------------------------

CREATE TABLE dag_jobs (
    id                  bigint PRIMARY KEY,
    workflow_id         text NOT NULL,
    version             integer NOT NULL,
    content_hash        text NOT NULL REFERENCES dag_graphs,
    status              text NOT NULL DEFAULT 'PENDING'
                        CHECK (status IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    run                 integer NOT NULL DEFAULT 1 CHECK (run >= 1),
    priority            smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 10),
    inputs              json NOT NULL,
    env                 json NOT NULL DEFAULT '{}',
    result              json,
    result_ref          text,
    error               json,
    -- The engine's state of a job besides its nodes: see JobRow.
    ending              boolean NOT NULL DEFAULT false,
    stopping            boolean NOT NULL DEFAULT false,
    deadline_passed     boolean NOT NULL DEFAULT false,
    signals             json NOT NULL DEFAULT '{}',
    added               json NOT NULL DEFAULT '[]',
    idempotency_key     text CHECK (length(idempotency_key) BETWEEN 1 AND 128),
    body_hash           text,
    submitted_by        text NOT NULL DEFAULT '' CHECK (length(submitted_by) <= 64),
    correlation_id      text,
    callback_url        text CHECK (length(callback_url) <= 512),
    -- Set by `run`: all tasks of the job go to this queue, which only that process serves while it is alive.
    queue               text,
    -- Workflows that came with the job: content hashes by id, looked up before the published ones.
    workflows           json NOT NULL DEFAULT '{}',
    -- No foreign key: each write checks (owner_id, owner_epoch), and old owners are pruned.
    owner_id            bigint,
    owner_epoch         integer NOT NULL DEFAULT 0,
    -- The last owner, which released the job or died: the event of the next claim names it.
    previous_owner_id   bigint,
    event_seq           integer NOT NULL DEFAULT 0,
    parent_job_id       bigint REFERENCES dag_jobs,
    parent_node_id      text COLLATE "C",
    parent_attempt      integer,
    depth               smallint NOT NULL DEFAULT 0 CHECK (depth BETWEEN 0 AND 7),
    -- Results of this job are reused where they match; but not those of the nodes in `redo`, nor of their dependents.
    resumed_from        bigint REFERENCES dag_jobs,
    redo                json NOT NULL DEFAULT '[]',
    deadline_at         timestamptz,
    cancel_requested_at timestamptz,
    created_at          timestamptz NOT NULL,
    started_at          timestamptz,
    finished_at         timestamptz,
    CHECK ((finished_at IS NOT NULL) = (status IN ('COMPLETED', 'FAILED', 'CANCELLED'))),
    CHECK ((parent_job_id IS NULL) = (parent_node_id IS NULL)),
    CHECK (ending OR NOT stopping),
    -- A key belongs to its submitter: the same key of another submitter is another job.
    UNIQUE (submitted_by, idempotency_key)
) WITH (fillfactor = 70);
-- What an orchestrator claims and loads: open jobs by owner; the highest priority first, then the oldest.
CREATE INDEX dag_jobs_open ON dag_jobs (owner_id, priority DESC, id) WHERE status IN ('PENDING', 'RUNNING');
CREATE INDEX dag_jobs_owned ON dag_jobs (owner_id) WHERE owner_id IS NOT NULL;
CREATE INDEX dag_jobs_parent ON dag_jobs (parent_job_id) WHERE parent_job_id IS NOT NULL;

-- A node that has not changed has no row: it is in the graph, and PENDING.
-- No foreign key here nor for attempts: each write is joined to the locked row of its job (see sql/turn.sql), and
-- a check for each of 100,000 children would cost as much as the insert. "C": a fan-out's children are a range of ids.
CREATE TABLE dag_node_states (
    job_id           bigint NOT NULL,
    node_id          text COLLATE "C" NOT NULL,
    status           text NOT NULL CHECK (status IN ('PENDING', 'READY', 'DISPATCHED', 'RUNNING', 'WAITING',
                                                     'COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')),
    skip_reason      text CHECK (skip_reason IN ('not_taken', 'upstream_failed', 'job_failed', 'superseded')),
    attempt          integer NOT NULL DEFAULT 0,
    task_id          bigint,
    tries_used       integer NOT NULL DEFAULT 0,
    lost_used        integer NOT NULL DEFAULT 0,
    parent_node_id   text COLLATE "C",
    fan_out_index    integer NOT NULL DEFAULT -1,
    source           json,
    source_count     integer,
    expanded_count   integer NOT NULL DEFAULT 0,
    stopped          boolean NOT NULL DEFAULT false,
    upstream_node_id text COLLATE "C",
    branch           text,
    wake_at          timestamptz,
    finished_seq     integer,
    output           json,
    output_ref       text,
    error            json,
    started_at       timestamptz,
    finished_at      timestamptz,
    -- Identifies the inputs of the output: see engine/fingerprints.py.
    fingerprint      bytea,
    handler_version  text,
    PRIMARY KEY (job_id, node_id),
    CHECK ((finished_seq IS NOT NULL) = (status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')
                                         AND skip_reason IS DISTINCT FROM 'superseded')),
    CHECK ((skip_reason IS NOT NULL) = (status = 'SKIPPED')),
    CHECK (tries_used + lost_used <= attempt),
    CHECK (wake_at IS NULL OR status IN ('READY', 'DISPATCHED', 'RUNNING', 'WAITING')),
    CHECK (output IS NULL OR output_ref IS NULL)
) WITH (fillfactor = 80);
-- No index on wake_at: the owner of a job has its timers in memory, and loads them with the job's rows.

-- One row for each finished attempt, kept with the job. Tasks in flight are in dag_task_queue.
CREATE TABLE dag_task_attempts (
    job_id        bigint NOT NULL,
    node_id       text COLLATE "C" NOT NULL,
    attempt       integer NOT NULL CHECK (attempt >= 1),
    task_id       bigint NOT NULL,
    queue         text NOT NULL,
    worker_id     bigint,
    status        text NOT NULL CHECK (status IN ('COMPLETED', 'FAILED', 'LOST', 'HANDED_BACK')),
    error         json,
    metrics       json,
    progress      json,
    dispatched_at timestamptz NOT NULL,
    claimed_at    timestamptz,
    completed_at  timestamptz NOT NULL,
    PRIMARY KEY (job_id, node_id, attempt)
);

-- Dependencies of nodes that were added while a job ran, and of graphs built in Python.
CREATE TABLE dag_groups (
    id        bigint PRIMARY KEY,
    job_id    bigint NOT NULL REFERENCES dag_jobs ON DELETE CASCADE,
    name      text NOT NULL,
    parent_id bigint REFERENCES dag_groups
);
CREATE TABLE dag_dependencies (
    job_id    bigint NOT NULL REFERENCES dag_jobs ON DELETE CASCADE,
    from_kind text NOT NULL CHECK (from_kind IN ('task', 'group')),
    from_id   text NOT NULL,
    to_kind   text NOT NULL CHECK (to_kind IN ('task', 'group')),
    to_id     text NOT NULL,
    PRIMARY KEY (job_id, from_kind, from_id, to_kind, to_id)
);

-- Tasks in flight, unclaimed or claimed --------------------------------------------------------------------------------

CREATE TABLE dag_task_queue (
    task_id           bigint PRIMARY KEY,
    job_id            bigint NOT NULL,
    node_id           text COLLATE "C" NOT NULL,
    attempt           integer NOT NULL,
    queue             text NOT NULL,
    priority          smallint NOT NULL,
    handler           text NOT NULL,
    params            json NOT NULL,
    secrets           json,
    timeout_seconds   float8 NOT NULL,
    dispatched_at     timestamptz NOT NULL,
    worker_id         bigint,
    lease_token       bigint,
    claimed_at        timestamptz,
    stop_requested_at timestamptz,
    progress          json,
    CHECK ((worker_id IS NULL) = (lease_token IS NULL)),
    CHECK ((worker_id IS NULL) = (claimed_at IS NULL))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX dag_task_queue_ready ON dag_task_queue (queue, priority DESC, task_id) WHERE worker_id IS NULL;
CREATE INDEX dag_task_queue_stopped ON dag_task_queue (task_id) WHERE stop_requested_at IS NOT NULL;
-- No index on worker_id: it is only needed for dead workers, and then the whole table is read once.

-- Results of workers and commands of clients: unprocessed rows only ----------------------------------------------------

CREATE TABLE dag_task_results (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id        bigint NOT NULL,
    node_id       text COLLATE "C" NOT NULL,
    attempt       integer NOT NULL,
    task_id       bigint NOT NULL,
    queue         text NOT NULL,
    worker_id     bigint,
    status        text NOT NULL CHECK (status IN ('COMPLETED', 'FAILED', 'LOST', 'HANDED_BACK')),
    permanent     boolean NOT NULL DEFAULT false,
    output        json,
    output_ref    text,
    error         json,
    metrics       json,
    progress      json,
    dispatched_at timestamptz NOT NULL,
    claimed_at    timestamptz,
    reported_at   timestamptz NOT NULL,
    -- The version of the handler that reported a success.
    handler_version text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE dag_inbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     bigint NOT NULL REFERENCES dag_jobs ON DELETE CASCADE,
    kind       text NOT NULL CHECK (kind IN ('cancel', 'approve', 'reject', 'signal', 'resume', 'retry', 'reinject',
                                             'add_nodes', 'child_finished')),
    body       json NOT NULL,
    sent_by    text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL
);
CREATE INDEX dag_inbox_job ON dag_inbox (job_id);

-- The audit log -------------------------------------------------------------------------------------------------------

CREATE TABLE dag_job_events (
    job_id  bigint NOT NULL,
    seq     integer NOT NULL,
    type    text NOT NULL,
    at      timestamptz NOT NULL,
    by      text NOT NULL,
    node_id text COLLATE "C",
    attempt integer,
    data    json,
    PRIMARY KEY (job_id, seq)
) PARTITION BY RANGE (job_id);
CREATE TABLE dag_job_events_all PARTITION OF dag_job_events DEFAULT;

-- Logs and checkpoints -----------------------------------------------------------------------------------------------

CREATE TABLE dag_task_logs (
    task_id bigint NOT NULL,
    chunk   integer NOT NULL,
    job_id  bigint NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    at      timestamptz NOT NULL,
    text    text NOT NULL,
    PRIMARY KEY (task_id, chunk)
);
CREATE INDEX dag_task_logs_job ON dag_task_logs (job_id, node_id, attempt);

CREATE TABLE dag_checkpoints (
    job_id    bigint NOT NULL,
    node_id   text COLLATE "C" NOT NULL,
    attempt   integer NOT NULL,
    phase     text NOT NULL,
    data      json NOT NULL,
    artifacts text[] NOT NULL DEFAULT '{}',
    saved_at  timestamptz NOT NULL,
    PRIMARY KEY (job_id, node_id)
);

-- Messages, slots, schedules ------------------------------------------------------------------------------------------

CREATE TABLE dag_outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic      text NOT NULL,
    body       json NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE TABLE dag_pool_slots (
    pool    text NOT NULL,
    task_id bigint NOT NULL,
    PRIMARY KEY (pool, task_id)
);
CREATE TABLE dag_schedules (
    id          bigint PRIMARY KEY,
    workflow_id text NOT NULL,
    inputs      json NOT NULL DEFAULT '{}',
    cron        text NOT NULL,
    is_active   boolean NOT NULL DEFAULT true,
    next_at     timestamptz
);

-- Roles, for a server that several services share; a test tries what each must not do. ------------------------------------

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['dagmaster_orchestrator', 'dagmaster_worker', 'dagmaster_gateway'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA dagapp TO %I', name);
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'the roles of dagmaster were not made: this user may not create roles';
    RETURN;
END $$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_gateway') THEN
        RETURN;
    END IF;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dagapp TO dagmaster_orchestrator;
    REVOKE ALL ON alembic_version FROM dagmaster_orchestrator;
    GRANT SELECT ON alembic_version TO dagmaster_orchestrator, dagmaster_worker, dagmaster_gateway;

    GRANT SELECT, INSERT, UPDATE ON dag_workers, dag_task_logs, dag_checkpoints TO dagmaster_worker;
    GRANT SELECT, UPDATE, DELETE ON dag_task_queue TO dagmaster_worker;
    GRANT SELECT, INSERT ON dag_task_results TO dagmaster_worker;
    -- To notify the owner of a result, and to name the workflow of a task.
    GRANT SELECT (id, owner_id, workflow_id, version) ON dag_jobs TO dagmaster_worker;
    GRANT SELECT, INSERT, UPDATE, DELETE ON dag_leases TO dagmaster_worker;

    GRANT SELECT ON dag_workflows, dag_graphs, dag_jobs, dag_node_states, dag_task_attempts, dag_job_events,
        dag_orchestrators, dag_workers TO dagmaster_gateway;
END $$;
