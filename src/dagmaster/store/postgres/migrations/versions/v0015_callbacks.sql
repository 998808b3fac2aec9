-- Callbacks: what the receivers of jobs and of requests are told. The row is written by triggers, in the transaction that
-- changes the state, whatever code changes it; a relay delivers it. One row for each state of a run: its id never changes.

SET LOCAL lock_timeout = '10s';

-- Never used: it had neither a receiver nor an order, nor a place for what became of a message.
DROP TABLE dag_outbox;

-- Whether a request that wants callbacks led to the job: the trigger of the job looks for requests only then.
ALTER TABLE dag_jobs ADD COLUMN notifies boolean NOT NULL DEFAULT false;
-- Signs the address of the request's result: see ports/result_links.py. A random UUID, which is never shown.
ALTER TABLE dag_api_requests ADD COLUMN result_key uuid NOT NULL DEFAULT gen_random_uuid();

CREATE TABLE dag_callbacks (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    -- The order in which the states of a subject are told.
    seq             bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    tenant          text COLLATE "C" NOT NULL,
    -- Of a request, whose callbacks never show the job that it led to; else of the job.
    request_id      uuid,
    job_id          bigint,
    subject         text COLLATE "C" GENERATED ALWAYS AS (coalesce(request_id::text, job_id::text)) STORED NOT NULL,
    run             integer NOT NULL DEFAULT 1 CHECK (run >= 1),
    state           text NOT NULL CHECK (state IN ('running', 'completed', 'failed')),
    reason          text CHECK (reason IN ('failed', 'cancelled')),
    url             text NOT NULL,
    -- The origin of the URL: https://host[:port].
    endpoint        text COLLATE "C" NOT NULL,
    occurred_at     timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock(),
    attempts        integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    next_attempt_at timestamptz NOT NULL,
    -- It waits for an earlier state of its subject.
    is_parked       boolean NOT NULL DEFAULT false,
    -- The hold of a relay. A result without the token changes nothing.
    lease_token     bigint,
    leased_until    timestamptz,
    last_attempt_at timestamptz,
    last_status     integer,
    last_error      text CHECK (length(last_error) <= 500),
    delivered_at    timestamptz,
    dead_at         timestamptz,
    dead_reason     text CHECK (dead_reason IN ('exhausted', 'gone', 'url_invalid')),
    CHECK ((reason IS NOT NULL) = (state = 'failed')),
    CHECK (delivered_at IS NULL OR dead_at IS NULL),
    CHECK ((dead_at IS NULL) = (dead_reason IS NULL)),
    CHECK ((lease_token IS NULL) = (leased_until IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- One id for each state.
CREATE UNIQUE INDEX dag_callbacks_state ON dag_callbacks (subject, (coalesce(job_id, 0)), run, state);
-- What is due, an endpoint at a time.
CREATE INDEX dag_callbacks_waiting ON dag_callbacks (tenant, endpoint, next_attempt_at, seq)
    WHERE delivered_at IS NULL AND dead_at IS NULL;
CREATE INDEX dag_callbacks_order ON dag_callbacks (subject, seq) WHERE delivered_at IS NULL AND dead_at IS NULL;
CREATE INDEX dag_callbacks_leased ON dag_callbacks (tenant, endpoint) WHERE lease_token IS NOT NULL;
CREATE INDEX dag_callbacks_dead ON dag_callbacks (tenant, endpoint, seq) WHERE dead_at IS NOT NULL;
CREATE INDEX dag_callbacks_delivered ON dag_callbacks (delivered_at) WHERE delivered_at IS NOT NULL;
CREATE INDEX dag_callbacks_tenant ON dag_callbacks (tenant, seq);

-- Where callbacks go, with the health of each. There is no row before the first attempt.
CREATE TABLE dag_external_services (
    tenant            text COLLATE "C" NOT NULL,
    endpoint          text COLLATE "C" NOT NULL,
    -- Failures since the last success.
    failures          integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    failing_since     timestamptz,
    last_error        text CHECK (length(last_error) <= 500),
    last_attempt_at   timestamptz,
    last_delivered_at timestamptz,
    -- Nothing is sent before.
    open_at           timestamptz,
    paused_at         timestamptz,
    paused_by         text,
    pause_reason      text CHECK (pause_reason IN ('failing', 'gone', 'operator')),
    created_at        timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (tenant, endpoint),
    CHECK ((paused_at IS NULL) = (pause_reason IS NULL)),
    CHECK ((failing_since IS NULL) = (failures = 0))
) WITH (fillfactor = 50);

-- What callbacks of a tenant are signed with. Secrets are sealed with the key of the installation.
CREATE TABLE dag_signing_secrets (
    secret_id  text COLLATE "C" PRIMARY KEY CHECK (secret_id ~ '^[0-9a-f]{12}$'),
    tenant     text COLLATE "C" NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('hmac', 'ed25519')),
    sealed     json NOT NULL,
    -- Of a key pair: what anybody may know, and the name of the set of the tenant's public keys.
    public_key text CHECK ((public_key IS NOT NULL) = (kind = 'ed25519')),
    key_set    uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    created_by text NOT NULL DEFAULT '',
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE INDEX dag_signing_secrets_tenant ON dag_signing_secrets (tenant, created_at);
CREATE INDEX dag_signing_secrets_public ON dag_signing_secrets (key_set) WHERE public_key IS NOT NULL;

-- Store a callback, unless this state was stored, and wake relays. The caller's rights apply.
CREATE FUNCTION dag_add_callback(
    tenant text, request_id uuid, job_id bigint, run integer, state text, reason text, url text, occurred_at timestamptz, due_at timestamptz
) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    callback_id uuid;
BEGIN
    INSERT INTO dagapp.dag_callbacks (tenant, request_id, job_id, run, state, reason, url, endpoint, occurred_at, next_attempt_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce(lower(substring($7 from '^[A-Za-z]+://[^/?#\\]+')), ''), $8, $9)
    ON CONFLICT DO NOTHING
    RETURNING id INTO callback_id;
    IF callback_id IS NOT NULL THEN
        PERFORM pg_notify('dagmaster_callbacks', '');
    END IF;
    RETURN callback_id;
END $$;

-- What receivers are told of a status: NULL is told to nobody.
CREATE FUNCTION dag_callback_state(status text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE status WHEN 'RUNNING' THEN 'running' WHEN 'COMPLETED' THEN 'completed'
                       WHEN 'FAILED' THEN 'failed' WHEN 'CANCELLED' THEN 'failed' END
$$;
CREATE FUNCTION dag_callback_reason(status text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE status WHEN 'FAILED' THEN 'failed' WHEN 'CANCELLED' THEN 'cancelled' END
$$;

-- As the owner of the tables: who changes a job may not see its requests, nor the outbox.
CREATE FUNCTION dag_tell_job() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    told_at timestamptz := coalesce(NEW.finished_at, dagapp.clock());
    told_state text := dagapp.dag_callback_state(NEW.status);
    told_reason text := dagapp.dag_callback_reason(NEW.status);
BEGIN
    IF told_state IS NULL THEN
        RETURN NULL;
    END IF;
    IF NEW.callback_url IS NOT NULL THEN
        PERFORM dagapp.dag_add_callback(
            NEW.tenant, NULL, NEW.id, NEW.run, told_state, told_reason, NEW.callback_url, told_at, dagapp.clock());
    END IF;
    IF NEW.notifies THEN
        PERFORM dagapp.dag_add_callback(
            r.tenant, r.request_id, NEW.id, NEW.run, told_state, told_reason, r.callback_url, told_at, dagapp.clock())
        FROM dagapp.dag_api_requests r
        WHERE r.job_id = NEW.id AND r.callback_url IS NOT NULL AND r.sandbox IS NULL;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER dag_jobs_tell AFTER UPDATE OF status, run ON dag_jobs
    FOR EACH ROW
    WHEN ((NEW.callback_url IS NOT NULL OR NEW.notifies)
          AND (NEW.status IS DISTINCT FROM OLD.status OR NEW.run IS DISTINCT FROM OLD.run))
    EXECUTE FUNCTION dag_tell_job();

-- A request that leads to a job is told what the job has been already. The update locks the job: a change of its state
-- that comes at the same moment waits, and then finds the request.
CREATE FUNCTION dag_tell_request() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job record;
BEGIN
    UPDATE dagapp.dag_jobs j SET notifies = true WHERE j.id = NEW.job_id
    RETURNING j.status, j.run, j.started_at, j.finished_at INTO job;
    IF job.status IS NULL OR job.status = 'PENDING' THEN
        RETURN NULL;
    END IF;
    IF job.started_at IS NOT NULL THEN
        PERFORM dagapp.dag_add_callback(
            NEW.tenant, NEW.request_id, NEW.job_id, job.run, 'running', NULL, NEW.callback_url, job.started_at, dagapp.clock());
    END IF;
    IF job.finished_at IS NOT NULL THEN
        PERFORM dagapp.dag_add_callback(
            NEW.tenant, NEW.request_id, NEW.job_id, job.run, dagapp.dag_callback_state(job.status),
            dagapp.dag_callback_reason(job.status), NEW.callback_url, job.finished_at, dagapp.clock());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER dag_api_requests_tell AFTER INSERT OR UPDATE OF job_id, callback_url ON dag_api_requests
    FOR EACH ROW WHEN (NEW.job_id IS NOT NULL AND NEW.callback_url IS NOT NULL AND NEW.sandbox IS NULL)
    EXECUTE FUNCTION dag_tell_request();

-- Store a callback of a request that no job tells, to be sent at a time: for what is played, and not run. NULL: there is
-- no such request that the caller sees, it wants no callbacks, or this state was stored before.
CREATE FUNCTION dag_enqueue_callback(
    request_id uuid, state text, due_at timestamptz, reason text DEFAULT NULL
) RETURNS uuid LANGUAGE sql AS $$
    SELECT dagapp.dag_add_callback(r.tenant, r.request_id, NULL, 1, $2, $4, r.callback_url, $3, $3)
    FROM dagapp.dag_api_requests r
    WHERE r.request_id = $1 AND r.callback_url IS NOT NULL
$$;

-- The public keys of a set, for anybody who knows its name; NULL: those of the installation.
CREATE FUNCTION dag_public_signing_keys(key_set uuid)
RETURNS TABLE (secret_id text, public_key text, expires_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.secret_id, s.public_key, s.expires_at
    FROM dagapp.dag_signing_secrets s
    WHERE s.public_key IS NOT NULL AND s.revoked_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > dagapp.clock())
      AND CASE WHEN $1 IS NULL THEN s.tenant = 'default' ELSE s.key_set = $1 END
    ORDER BY s.created_at DESC, s.secret_id
$$;
-- A trigger runs without this right; with it, anybody could let another table write callbacks.
REVOKE ALL ON FUNCTION dag_tell_job, dag_tell_request, dag_public_signing_keys FROM PUBLIC;
