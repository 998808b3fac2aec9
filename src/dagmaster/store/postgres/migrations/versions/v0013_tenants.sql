-- Tenants: teams and partners on one installation that do not see each other. What belongs to one has its name; without
-- any, everything belongs to `default`. Who sees which rows is decided by the policies of tenant_policies.py, which come
-- with the roles. Services of version 0012 continue to run on this schema, apart from publishing workflows.

SET LOCAL lock_timeout = '10s';

-- The tenant of the transaction: its name, `*` for a caller of the installation that sees all, else NULL or empty.
CREATE FUNCTION dag_tenant() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT current_setting('dagapp.tenant', true)
$$;
-- The tenant of rows that are inserted without one. What the installation inserts belongs to `default`.
CREATE FUNCTION dag_new_tenant() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(nullif(current_setting('dagapp.tenant', true), '*'), ''), 'default')
$$;

CREATE TABLE dag_tenants (
    name             text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9-]{0,31}$'),
    title            text NOT NULL DEFAULT '' CHECK (length(title) <= 128),
    -- The platforms whose identifiers it may send, and the workflows of `default` that it may use; {*}: all.
    platforms        text[] NOT NULL DEFAULT '{}',
    workflows        text[] NOT NULL DEFAULT '{}',
    -- Limits; NULL: none.
    max_open_jobs    integer CHECK (max_open_jobs >= 0),
    requests_per_day integer CHECK (requests_per_day >= 0),
    rate_per_second  float8 CHECK (rate_per_second > 0),
    rate_burst       integer CHECK (rate_burst >= 1),
    -- Where its requests are reported that name no address.
    callback_url     text CHECK (length(callback_url) <= 512),
    -- Its keys are rejected while it is disabled. Its jobs continue.
    disabled_at      timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    created_by       text NOT NULL DEFAULT '',
    updated_at       timestamptz NOT NULL DEFAULT now()
);
INSERT INTO dag_tenants (name, title, workflows) VALUES ('default', 'The installation', '{*}');

-- Jobs. What belongs to a job is seen by who sees the job.
ALTER TABLE dag_jobs ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
-- A tenant's jobs among a million of others. Those of `default` are not in it: one tenant alone pays nothing.
CREATE INDEX dag_jobs_tenant ON dag_jobs (tenant, id) WHERE tenant <> 'default';
CREATE INDEX dag_jobs_tenant_open ON dag_jobs (tenant, id) WHERE tenant <> 'default' AND status IN ('PENDING', 'RUNNING');
-- With the tenant, so that finished jobs are still counted from the index alone.
CREATE INDEX dag_jobs_finished_tenant ON dag_jobs (finished_at) INCLUDE (status, tenant) WHERE finished_at IS NOT NULL;
DROP INDEX dag_jobs_finished;
ALTER INDEX dag_jobs_finished_tenant RENAME TO dag_jobs_finished;

-- Workflows: each tenant has its own ids.
ALTER TABLE dag_workflows ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_workflows DROP CONSTRAINT dag_workflows_pkey;
ALTER TABLE dag_workflows ADD PRIMARY KEY (workflow_id, tenant, version);
DROP INDEX dag_workflows_one_active;
CREATE UNIQUE INDEX dag_workflows_one_active ON dag_workflows (workflow_id, tenant) WHERE is_active;

-- Callers, and what they register.
ALTER TABLE dag_api_keys ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_browser_sessions ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_workers ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT dag_new_tenant();
ALTER TABLE dag_audit ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT dag_new_tenant();
ALTER TABLE dag_task_receipts ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT dag_new_tenant();

-- A submitter of a tenant has its name before its namespace: TENANT/key:NAME.
ALTER TABLE dag_jobs DROP CONSTRAINT dag_jobs_submitted_by_check;
ALTER TABLE dag_jobs ADD CONSTRAINT dag_jobs_submitted_by_check CHECK (length(submitted_by) <= 113) NOT VALID;
