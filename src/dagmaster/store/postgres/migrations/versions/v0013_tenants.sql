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

-- How many open jobs a tenant may have. Submits of one tenant take turns, so that two do not both see the last free place;
-- those of `default`, and child jobs, pay nothing.
CREATE FUNCTION dag_check_open_jobs() RETURNS trigger LANGUAGE plpgsql SET search_path = dagapp, pg_temp AS $$
DECLARE
    allowed integer;
BEGIN
    SELECT t.max_open_jobs INTO allowed FROM dag_tenants t WHERE t.name = NEW.tenant;
    IF allowed IS NULL
       -- The same submission again is answered with the job that there is.
       OR EXISTS (SELECT FROM dag_jobs j WHERE j.submitted_by = NEW.submitted_by AND j.idempotency_key = NEW.idempotency_key) THEN
        RETURN NEW;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('dagmaster open jobs'), hashtext(NEW.tenant));
    IF (SELECT count(*) FROM (SELECT FROM dag_jobs j
                              WHERE j.tenant = NEW.tenant AND j.tenant <> 'default' AND j.status IN ('PENDING', 'RUNNING')
                                AND j.parent_job_id IS NULL
                              LIMIT allowed) AS o) >= allowed THEN
        RAISE EXCEPTION 'the tenant has % open jobs, as many as it may have', allowed USING ERRCODE = 'DM430';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER dag_jobs_open_jobs BEFORE INSERT ON dag_jobs
    FOR EACH ROW WHEN (NEW.tenant <> 'default' AND NEW.parent_job_id IS NULL) EXECUTE FUNCTION dag_check_open_jobs();

-- Workflows: each tenant has its own ids.
ALTER TABLE dag_workflows ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_workflows DROP CONSTRAINT dag_workflows_pkey;
ALTER TABLE dag_workflows ADD PRIMARY KEY (workflow_id, tenant, version);
DROP INDEX dag_workflows_one_active;
CREATE UNIQUE INDEX dag_workflows_one_active ON dag_workflows (workflow_id, tenant) WHERE is_active;

-- Callers, and what they register.
ALTER TABLE dag_api_keys ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default' REFERENCES dag_tenants;
ALTER TABLE dag_browser_sessions ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_workers ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT dag_new_tenant();
ALTER TABLE dag_audit ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT dag_new_tenant();
ALTER TABLE dag_task_receipts ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT dag_new_tenant();

-- Contracts of handlers belong to the tenant of their owner: its name stands before that of a caller, TENANT/key:NAME. Two
-- tenants may have handlers of the same name.
CREATE FUNCTION dag_tenant_of(actor text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(substring(actor FROM '^([a-z][a-z0-9-]{0,31})/'), 'default')
$$;
ALTER TABLE dag_handlers ADD COLUMN tenant text COLLATE "C" NOT NULL GENERATED ALWAYS AS (dag_tenant_of(owner)) STORED;
ALTER TABLE dag_handlers DROP CONSTRAINT dag_handlers_pkey;
ALTER TABLE dag_handlers ADD PRIMARY KEY (name, version, tenant);
ALTER TABLE dag_handler_changes
    ADD COLUMN tenant text COLLATE "C" NOT NULL GENERATED ALWAYS AS (dag_tenant_of(actor)) STORED;
ALTER TABLE dag_handler_trust
    ADD COLUMN tenant text COLLATE "C" NOT NULL GENERATED ALWAYS AS (dag_tenant_of(actor)) STORED;
-- The contracts of the installation and of the caller's tenant: others' are not there for it, also if the installation asks.
CREATE OR REPLACE FUNCTION dag_may_have_handler(handler text, caller text, named text[]) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT handler = ANY(named)
        OR EXISTS (SELECT FROM dagapp.dag_handler_trust t
                   WHERE t.actor = caller
                     AND (t.name = handler OR t.name IN (SELECT dagapp.dag_names_of_alias(handler))))
        OR coalesce((SELECT bool_and(h.owner = caller AND (h.trusted_at IS NOT NULL OR strpos(handler, '.') = 0))
                     FROM dagapp.dag_handlers h
                     WHERE h.name = handler AND h.tenant IN ('default', dagapp.dag_tenant_of(caller))), false)
           AND NOT EXISTS (SELECT FROM dagapp.dag_names_of_alias(handler))
$$;

-- Sums of finished jobs.
ALTER TABLE dag_metric_jobs ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_metric_jobs DROP CONSTRAINT dag_metric_jobs_pkey;
ALTER TABLE dag_metric_jobs ADD PRIMARY KEY (period, workflow_id, status, bin, tenant);
ALTER TABLE dag_metric_nodes ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_metric_nodes DROP CONSTRAINT dag_metric_nodes_pkey;
ALTER TABLE dag_metric_nodes ADD PRIMARY KEY (workflow_id, period, node_id, status, bin, tenant);
ALTER TABLE dag_metric_failures ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_metric_failures DROP CONSTRAINT dag_metric_failures_pkey;
ALTER TABLE dag_metric_failures ADD PRIMARY KEY (period, workflow_id, node_id, message, tenant);
ALTER TABLE dag_metric_throughput ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE dag_metric_throughput DROP CONSTRAINT dag_metric_throughput_pkey;
ALTER TABLE dag_metric_throughput ADD PRIMARY KEY (minute, tenant);

-- A graph is found by its hash alone, which a row names that the caller sees: the roles of servers and gateways cannot
-- read the table, and so cannot list graphs of others.
CREATE FUNCTION dag_graph(hash text) RETURNS json LANGUAGE sql STABLE SECURITY DEFINER SET search_path = dagapp, pg_temp AS $$
    SELECT g.definition FROM dag_graphs g WHERE g.content_hash = hash
$$;
REVOKE ALL ON FUNCTION dag_graph FROM PUBLIC;
-- Whose a job is, also for callers that do not see it; NULL if there is none, as of one that the same statement inserts.
CREATE FUNCTION dag_job_tenant(job bigint) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = dagapp, pg_temp AS $$
    SELECT j.tenant FROM dag_jobs j WHERE j.id = job
$$;
REVOKE ALL ON FUNCTION dag_job_tenant FROM PUBLIC;
-- Whether there are other tenants than `default`, also for callers that see one alone.
CREATE FUNCTION dag_has_tenants() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = dagapp, pg_temp AS $$
    SELECT EXISTS (SELECT FROM dag_tenants t WHERE t.name <> 'default')
$$;
REVOKE ALL ON FUNCTION dag_has_tenants FROM PUBLIC;
-- Whose versions of a workflow a transaction means: its tenant's own, else the installation's.
CREATE FUNCTION dag_workflow_tenant(workflow text, tenant text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM dagapp.dag_workflows w
                             WHERE w.workflow_id = workflow AND w.tenant = dag_workflow_tenant.tenant)
                THEN tenant ELSE 'default' END
$$;
-- Whether a tenant may use a workflow of the installation.
CREATE FUNCTION dag_may_use_workflow(workflow text, tenant text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT t.workflows && ARRAY['*', workflow] FROM dagapp.dag_tenants t
                     WHERE t.name = dag_may_use_workflow.tenant), false)
$$;

-- A submitter of a tenant has its name before its namespace: TENANT/key:NAME.
ALTER TABLE dag_jobs DROP CONSTRAINT dag_jobs_submitted_by_check;
ALTER TABLE dag_jobs ADD CONSTRAINT dag_jobs_submitted_by_check CHECK (length(submitted_by) <= 113) NOT VALID;
