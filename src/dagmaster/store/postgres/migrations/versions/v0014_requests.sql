-- Requests of partners: what was asked, and the job it led to. A request exists even when no job could start. Platforms: the
-- identifiers that a partner's system uses, a row each.

SET LOCAL lock_timeout = '10s';

CREATE TABLE dag_platforms (
    platform_id text COLLATE "C" PRIMARY KEY CHECK (platform_id ~ '^[a-z][a-z0-9_-]{0,31}$'),
    title       text NOT NULL DEFAULT '' CHECK (length(title) <= 128),
    -- The fields that identify a dataset there, all of them needed, and those that may be left out. They are text, unless
    -- `field_types` says "integer".
    id_fields   text[] NOT NULL CHECK (cardinality(id_fields) BETWEEN 1 AND 16),
    optional_id_fields text[] NOT NULL DEFAULT '{}' CHECK (cardinality(optional_id_fields) <= 16),
    field_types jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(field_types) = 'object'),
    -- Where further fields of a partner's body belong: {"its field": "platform_refs.NAME" or "inputs.NAME", or a field of a
    -- submit}. The id fields have their own names there.
    field_map   jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(field_map) = 'object'),
    created_at  timestamptz NOT NULL DEFAULT clock(),
    updated_at  timestamptz NOT NULL DEFAULT clock()
);
INSERT INTO dag_platforms (platform_id, title, id_fields, optional_id_fields, field_types) VALUES
    ('ddh', 'DDH', '{dataset_id,resource_id}', '{version_id}', '{}'),
    ('arcgis', 'ArcGIS', '{item_id}', '{layer_index}', '{"layer_index": "integer"}');
-- The installation may use every platform.
UPDATE dag_tenants SET platforms = '{*}' WHERE name = 'default';

CREATE TABLE dag_api_requests (
    request_id      uuid PRIMARY KEY CHECK (request_id <> '00000000-0000-0000-0000-000000000000'),
    tenant          text COLLATE "C" NOT NULL DEFAULT dag_new_tenant() REFERENCES dag_tenants,
    -- The caller, and the name that the partner gave.
    actor           text COLLATE "C" NOT NULL CHECK (length(actor) <= 113),
    submitted_by    text NOT NULL DEFAULT '' CHECK (length(submitted_by) <= 64),
    workflow_id     text COLLATE "C" NOT NULL CHECK (length(workflow_id) <= 64),
    platform_id     text COLLATE "C",
    platform_refs   jsonb,
    -- What was sent. Values of secret inputs, and all values of a request that was rejected, are left out.
    payload         json NOT NULL,
    idempotency_key text COLLATE "C" CHECK (length(idempotency_key) BETWEEN 1 AND 128),
    -- What the same request has again: a digest of the body without its hidden values, and how to recognize these.
    body_hash       text NOT NULL,
    hidden_hash     json,
    -- accepted: led to a job; rejected: no job can start, `error` says why; sandbox: nothing runs, the outcome is played.
    state           text NOT NULL CHECK (state IN ('accepted', 'rejected', 'sandbox')),
    error           json,
    -- The job it led to last. Several requests may lead to one job.
    job_id          bigint,
    priority        smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 10),
    callback_url    text CHECK (length(callback_url) <= 512),
    sandbox         json,
    created_at      timestamptz NOT NULL DEFAULT clock(),
    updated_at      timestamptz NOT NULL DEFAULT clock(),
    CHECK ((state = 'accepted') = (job_id IS NOT NULL)),
    CHECK ((state = 'rejected') = (error IS NOT NULL)),
    CHECK ((state = 'sandbox') = (sandbox IS NOT NULL))
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX dag_api_requests_key ON dag_api_requests (idempotency_key, actor, tenant)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX dag_api_requests_job ON dag_api_requests (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX dag_api_requests_tenant ON dag_api_requests (tenant, created_at DESC, request_id DESC);
CREATE INDEX dag_api_requests_created ON dag_api_requests (created_at DESC, request_id DESC);
CREATE INDEX dag_api_requests_rejected ON dag_api_requests (created_at DESC, request_id DESC) WHERE state = 'rejected';

-- Keys whose requests are played. Their digests have a prefix: servers of earlier versions would run real jobs.
ALTER TABLE dag_api_keys ADD COLUMN is_sandbox boolean NOT NULL DEFAULT false;
-- The callbacks of a played request are stored with it, to be sent when their time has come.
CREATE FUNCTION dag_play_callbacks() RETURNS trigger LANGUAGE plpgsql SET search_path = dagapp, pg_temp AS $$
BEGIN
    -- Callbacks come with the next version of the schema.
    IF to_regprocedure('dagapp.dag_enqueue_callback(uuid, text, timestamptz, text)') IS NOT NULL THEN
        PERFORM dagapp.dag_enqueue_callback(
            NEW.request_id, 'running', NEW.created_at + make_interval(secs => (NEW.sandbox ->> 'starts_after')::float8), NULL);
        PERFORM dagapp.dag_enqueue_callback(
            NEW.request_id, NEW.sandbox ->> 'outcome',
            NEW.created_at + make_interval(secs => (NEW.sandbox ->> 'ends_after')::float8), NEW.sandbox ->> 'reason');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER dag_api_requests_played AFTER INSERT ON dag_api_requests
    FOR EACH ROW WHEN (NEW.sandbox IS NOT NULL AND NEW.callback_url IS NOT NULL)
    EXECUTE FUNCTION dag_play_callbacks();

-- How many requests of a day (in UTC) a tenant with a quota has made. Those of a sandbox do not count.
CREATE TABLE dag_tenant_usage (
    tenant   text COLLATE "C" PRIMARY KEY REFERENCES dag_tenants ON DELETE CASCADE,
    day      date NOT NULL,
    requests bigint NOT NULL
);

-- Counts the requests that a statement stored, of servers and of users of the database, and fails it if they exceed the quota of their tenant.
-- What is not stored again, because its key is known, does not count.
CREATE FUNCTION dag_count_requests() RETURNS trigger LANGUAGE plpgsql SET search_path = dagapp, pg_temp AS $$
DECLARE
    today date := (clock() AT TIME ZONE 'UTC')::date;
    exceeded text;
BEGIN
    INSERT INTO dag_tenant_usage AS u (tenant, day, requests)
    SELECT t.name, today, a.requests
    FROM (SELECT stored.tenant, count(*) AS requests FROM stored WHERE stored.sandbox IS NULL GROUP BY 1 ORDER BY 1) AS a
    JOIN dag_tenants t ON t.name = a.tenant AND t.requests_per_day IS NOT NULL
    ON CONFLICT (tenant) DO UPDATE
    SET day = today, requests = excluded.requests + CASE WHEN u.day = today THEN u.requests ELSE 0 END;
    SELECT t.name INTO exceeded
    FROM dag_tenants t JOIN dag_tenant_usage u ON u.tenant = t.name AND u.day = today
    WHERE t.requests_per_day IS NOT NULL AND u.requests > t.requests_per_day
      AND t.name IN (SELECT stored.tenant FROM stored WHERE stored.sandbox IS NULL);
    IF FOUND THEN
        RAISE EXCEPTION 'the quota of requests a day of tenant % is used up', exceeded USING ERRCODE = 'DM429';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER dag_api_requests_counted AFTER INSERT ON dag_api_requests
    REFERENCING NEW TABLE AS stored FOR EACH STATEMENT EXECUTE FUNCTION dag_count_requests();
