-- Requests of partners: what was asked, and the job it led to. A request exists even when no job could start. Platforms: the
-- identifiers that a partner's system uses, a row each.

SET LOCAL lock_timeout = '10s';

CREATE TABLE dag_platforms (
    platform_id text COLLATE "C" PRIMARY KEY CHECK (platform_id ~ '^[a-z][a-z0-9_-]{0,31}$'),
    title       text NOT NULL DEFAULT '' CHECK (length(title) <= 128),
    -- The fields that identify a dataset there, all of them needed; those that may be left out; and where fields of a
    -- partner's body belong: {"its field": "platform_refs.NAME" or "inputs.NAME" or a field of a submit}.
    id_fields   text[] NOT NULL CHECK (cardinality(id_fields) BETWEEN 1 AND 16),
    optional_id_fields text[] NOT NULL DEFAULT '{}',
    field_map   jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(field_map) = 'object'),
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO dag_platforms (platform_id, title, id_fields, optional_id_fields) VALUES
    ('ddh', 'DDH', '{dataset_id,resource_id}', '{version_id}'),
    ('arcgis', 'ArcGIS', '{item_id}', '{layer_index}');

CREATE TABLE dag_api_requests (
    request_id      uuid PRIMARY KEY,
    tenant          text COLLATE "C" NOT NULL DEFAULT dag_new_tenant() REFERENCES dag_tenants,
    -- The caller, and the name that the partner gave.
    actor           text COLLATE "C" NOT NULL CHECK (length(actor) <= 113),
    submitted_by    text NOT NULL DEFAULT '' CHECK (length(submitted_by) <= 64),
    workflow_id     text COLLATE "C" NOT NULL CHECK (length(workflow_id) <= 64),
    platform_id     text COLLATE "C",
    platform_refs   jsonb,
    -- What was sent, without the values of secret inputs.
    payload         json NOT NULL,
    idempotency_key text COLLATE "C" CHECK (length(idempotency_key) BETWEEN 1 AND 128),
    body_hash       text,
    -- received: no outcome yet; accepted: led to a job; rejected: no job can start, `error` says why.
    state           text NOT NULL DEFAULT 'received' CHECK (state IN ('received', 'accepted', 'rejected')),
    error           json,
    -- The job it led to last. Several requests may lead to one job.
    job_id          bigint,
    priority        smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 10),
    callback_url    text CHECK (length(callback_url) <= 512),
    -- What a sandbox key asked for: nothing runs, the outcome is played.
    sandbox         json,
    created_at      timestamptz NOT NULL DEFAULT clock(),
    updated_at      timestamptz NOT NULL DEFAULT clock(),
    CHECK ((state = 'accepted') = (job_id IS NOT NULL) OR sandbox IS NOT NULL),
    CHECK ((state = 'rejected') = (error IS NOT NULL) OR sandbox IS NOT NULL)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX dag_api_requests_key ON dag_api_requests (idempotency_key, actor, tenant)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX dag_api_requests_job ON dag_api_requests (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX dag_api_requests_tenant ON dag_api_requests (tenant, created_at DESC, request_id);
