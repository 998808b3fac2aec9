-- The statements of an orchestrator, besides its turns.

-- name: register
-- Register an orchestrator. One that registers again keeps the request to drain that it may not have seen.
INSERT INTO dag_orchestrators (owner_id, host, pid, version, started_at, heartbeat_at, drain_requested_at)
VALUES (:owner_id, :host, :pid, :version, clock(), clock(),
        (SELECT drain_requested_at FROM dag_orchestrators WHERE owner_id = :previous_id))
ON CONFLICT (owner_id) DO UPDATE SET heartbeat_at = clock(), stopped_at = NULL

-- name: heartbeat
-- Renew the lease, unless it has expired: then the row stays as it is and none is returned. A request to drain is seen.
UPDATE dag_orchestrators
SET heartbeat_at = clock(), counters = :counters::jsonb,
    drain_seen_at = CASE WHEN drain_requested_at IS NOT NULL THEN coalesce(drain_seen_at, clock()) END
WHERE owner_id = :owner_id AND stopped_at IS NULL
  AND (heartbeat_at > clock() - make_interval(secs => :lease_seconds)
       OR clock() < pg_postmaster_start_time() + make_interval(secs => :lease_seconds))
RETURNING drain_requested_at IS NOT NULL AS is_draining

-- name: claim
-- Claim open jobs without an owner, and finished ones with a command. A live `run` claims its own jobs itself. One that
-- was expired or drains claims none.
WITH me AS (
    SELECT owner_id, host, pid FROM dag_orchestrators
    WHERE owner_id = :owner_id AND stopped_at IS NULL AND drain_requested_at IS NULL
),
open_jobs AS (
    SELECT id, priority FROM dag_jobs
    WHERE owner_id IS NULL AND status IN ('PENDING', 'RUNNING')
      AND CASE WHEN :queue::text IS NOT NULL THEN queue = :queue::text
               ELSE queue IS NULL OR NOT EXISTS (SELECT FROM dag_workers w
                                                 WHERE dag_jobs.queue = ANY(w.queues) AND w.stopped_at IS NULL) END
    -- With the owner, which is NULL: else the order is not that of the index, and all open jobs are read and sorted.
    ORDER BY owner_id, priority DESC, id
    LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
),
commanded_jobs AS (
    SELECT j.id, j.priority FROM dag_jobs j
    WHERE j.id = ANY(ARRAY(SELECT DISTINCT job_id FROM dag_inbox)) AND j.owner_id IS NULL
      AND j.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND (:queue::text IS NULL OR j.queue = :queue::text)
    ORDER BY j.priority DESC, j.id
    LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
),
claimable AS (
    SELECT id FROM (SELECT * FROM open_jobs UNION ALL SELECT * FROM commanded_jobs) AS n ORDER BY priority DESC, id LIMIT :limit
),
{@claim_jobs}

-- name: claim_job
-- Claim one job without an owner, if it is open or has a command: for a process that decides about this job alone.
WITH me AS (
    SELECT owner_id, host, pid FROM dag_orchestrators WHERE owner_id = :owner_id AND stopped_at IS NULL
),
claimable AS (
    SELECT j.id FROM dag_jobs j
    WHERE j.id = :job_id AND j.owner_id IS NULL
      AND (j.status IN ('PENDING', 'RUNNING') OR EXISTS (SELECT FROM dag_inbox i WHERE i.job_id = j.id))
    FOR NO KEY UPDATE SKIP LOCKED
),
{@claim_jobs}

-- name: load_owned
-- Load owned jobs, all or some, under a new epoch. An earlier turn whose response was lost and that still runs on the
-- server either commits first, or is rejected by the epoch.
WITH claimed AS (
    UPDATE dag_jobs SET owner_epoch = owner_epoch + 1
    WHERE id = ANY(coalesce(:job_ids::bigint[], ARRAY(SELECT id FROM dag_jobs WHERE owner_id = :owner_id)))
      AND owner_id IS NOT DISTINCT FROM :owner_id
    RETURNING *
)
SELECT {@claimed_job}
FROM claimed
ORDER BY priority DESC, id

-- name: owned_job_ids
-- The ids of the owned jobs.
SELECT string_agg(id::text, ',') AS ids FROM dag_jobs WHERE owner_id = :owner_id

-- name: load_nodes
-- The rows of jobs' nodes, without their outputs.
SELECT job_id, node_id, status, skip_reason, attempt, task_id, failed_attempts, lost_attempts, shared_losses, parent_node_id,
       fan_out_index, source_count, expanded_count, stopped, upstream_node_id, branch, extract(epoch FROM wake_at)::float8 AS wake_at,
       finished_seq, error, fingerprint, handler_version
FROM dag_node_states WHERE job_id = ANY(:job_ids::bigint[])

-- name: read_results
-- Task results of this owner's jobs. They stay until the turn is committed.
SELECT r.id, r.job_id, r.node_id, r.attempt, r.status, r.permanent, r.output, r.output_ref, r.error,
       extract(epoch FROM r.started_at)::float8 AS started_at, extract(epoch FROM r.reported_at)::float8 AS reported_at,
       r.handler_version, CASE WHEN r.progress -> 'checkpoints' IS NOT NULL THEN r.progress::text END AS checkpoints,
       array_to_string(r.batches, ',') AS batches
FROM dag_task_results r
CROSS JOIN LATERAL (SELECT j.owner_id FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j
WHERE j.owner_id = :owner_id AND r.id > :after AND r.job_id <> ALL(:quarantined::bigint[])
ORDER BY r.id
LIMIT :limit

-- name: read_commands
-- Commands to this owner's jobs.
SELECT i.id, i.job_id, i.kind, i.body, i.sent_by, extract(epoch FROM i.created_at)::float8 AS at
FROM dag_inbox i
CROSS JOIN LATERAL (SELECT j.owner_id FROM dag_jobs j WHERE j.id = i.job_id LIMIT 1) j
WHERE j.owner_id = :owner_id AND i.job_id <> ALL(:quarantined::bigint[])
ORDER BY i.id
LIMIT :limit

-- name: load_outputs
-- The outputs of nodes.
SELECT node_id, output, output_ref FROM dag_node_states
WHERE job_id = :job_id AND node_id = ANY(:node_ids::text[]) AND status = 'COMPLETED'

-- name: output_refs
-- The outputs of nodes that are blobs.
SELECT output_ref FROM dag_node_states
WHERE job_id = :job_id AND node_id = ANY(:node_ids::text[]) AND status = 'COMPLETED' AND output_ref IS NOT NULL

-- name: load_fan_out_outputs
-- The outputs of the children of a fan-out, at any depth. Its children's ids are a range.
SELECT node_id, parent_node_id, fan_out_index, status, output, output_ref, expanded_count, source_count
FROM dag_node_states
WHERE job_id = :job_id AND node_id >= :low AND node_id < :high

-- name: load_fan_out_sources
-- The frozen lists of fan-outs.
SELECT node_id, source FROM dag_node_states WHERE job_id = :job_id AND node_id = ANY(:node_ids::text[])

-- name: load_source_nodes
-- The completed nodes of a job that another one resumes.
SELECT node_id, fingerprint, handler_version, attempt FROM dag_node_states
WHERE job_id = :job_id AND status = 'COMPLETED' AND fingerprint IS NOT NULL

-- name: handler_versions
-- The versions of each handler on live workers, and the last one that any worker had.
SELECT h.key AS handler, array_agg(DISTINCT h.value) FILTER (WHERE w.is_alive) AS live,
       (array_agg(h.value ORDER BY w.worker_id DESC))[1] AS last
FROM (SELECT worker_id, handlers,
             stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds) AS is_alive
      FROM dag_workers) AS w
CROSS JOIN LATERAL jsonb_each_text(w.handlers) AS h
GROUP BY h.key

-- name: unfinished_children
-- The last child job of some nodes, if it failed or was cancelled. The children of a parent are read once.
WITH parents AS (
    SELECT * FROM unnest(:job_ids::bigint[], :node_ids::text[]) AS p (job_id, node_id)
)
SELECT c.job_id, c.node_id, c.id
FROM (SELECT DISTINCT ON (c.parent_job_id, c.parent_node_id) c.parent_job_id AS job_id, c.parent_node_id AS node_id, c.id,
             c.status
      FROM dag_jobs c
      WHERE c.parent_job_id = ANY(ARRAY(SELECT DISTINCT job_id FROM parents))
        AND ((c.parent_job_id, c.parent_node_id) IN (SELECT job_id, node_id FROM parents)) IS TRUE
      ORDER BY c.parent_job_id, c.parent_node_id, c.id DESC) AS c
WHERE c.status IN ('FAILED', 'CANCELLED')

-- name: load_source_outputs
-- The outputs of nodes that still have these fingerprints, handler versions and attempts.
SELECT s.node_id, s.output, s.output_ref
FROM unnest(:node_ids::text[], :fingerprints::bytea[], :versions::text[], :attempts::integer[])
     AS n (node_id, fingerprint, handler_version, attempt)
CROSS JOIN LATERAL (SELECT * FROM dag_node_states s WHERE s.job_id = :job_id AND s.node_id = n.node_id LIMIT 1) s
WHERE s.status = 'COMPLETED' AND s.fingerprint = n.fingerprint AND s.attempt = n.attempt
  AND s.handler_version IS NOT DISTINCT FROM n.handler_version

-- name: load_job
-- A job, without owning it.
SELECT {@claimed_job}
FROM dag_jobs AS claimed WHERE id = :job_id

-- name: find_workflow
-- A published workflow: this version, or the active one; the tenant's own, else that of the installation, if it may use it.
SELECT workflow_id, version, content_hash FROM dag_workflows
WHERE workflow_id = :workflow_id AND tenant = dag_workflow_tenant(:workflow_id, :tenant::text)
  AND (tenant = :tenant::text OR dag_may_use_workflow(:workflow_id, :tenant::text))
  AND (version = :version::integer OR (:version::integer IS NULL AND is_active))

-- name: reclaim
-- Expire dead orchestrators and release their jobs. An outage of the database expires none, and neither does an
-- orchestrator that was paused itself.
WITH dead AS (
    SELECT owner_id FROM dag_orchestrators o
    WHERE o.heartbeat_at <= clock() - make_interval(secs => :lease_seconds) AND o.stopped_at IS NULL
      AND clock() >= pg_postmaster_start_time() + make_interval(secs => :lease_seconds)
      AND EXISTS (SELECT FROM dag_orchestrators me
                  WHERE me.owner_id = :owner_id AND me.heartbeat_at > clock() - make_interval(secs => :lease_seconds))
    FOR UPDATE SKIP LOCKED
),
expired AS (
    UPDATE dag_orchestrators o
    SET stopped_at = clock(),
        counters = o.counters || jsonb_build_object('left', (SELECT count(*) FROM dag_jobs j WHERE j.owner_id = o.owner_id))
    WHERE o.owner_id = ANY(ARRAY(SELECT owner_id FROM dead)) RETURNING o.owner_id
),
stopped AS (
    SELECT owner_id FROM expired
    UNION
    -- One that was paused may have claimed after it was expired.
    SELECT owner_id FROM dag_orchestrators WHERE stopped_at > clock() - interval '1 hour'
)
UPDATE dag_jobs SET owner_id = NULL, previous_owner_id = owner_id
WHERE id = ANY(ARRAY(
    SELECT j.id
    FROM stopped
    -- BETWEEN, not `=`: statistics of few owners say that one has most jobs, so that the whole table would be read.
    CROSS JOIN LATERAL (SELECT j.id FROM dag_jobs j WHERE j.owner_id BETWEEN stopped.owner_id AND stopped.owner_id
                        FOR NO KEY UPDATE) j))
RETURNING id

-- name: expired_workers
-- Workers whose lease has expired, with the same exceptions; and those that were expired a moment ago: a claim may have
-- overtaken that.
SELECT worker_id FROM dag_workers w
WHERE (w.stopped_at > clock() - make_interval(secs => 5 * :worker_lease_seconds)
       OR (w.heartbeat_at <= clock() - make_interval(secs => :worker_lease_seconds) AND w.stopped_at IS NULL))
  AND clock() >= pg_postmaster_start_time() + make_interval(secs => :worker_lease_seconds)
  AND EXISTS (SELECT FROM dag_orchestrators me
              WHERE me.owner_id = :owner_id AND me.heartbeat_at > clock() - make_interval(secs => :lease_seconds))

-- name: mark_lost_tasks
-- Expire dead workers, and report the tasks that they had claimed as lost.
WITH dead AS (
    UPDATE dag_workers w
    SET stopped_at = clock(),
        -- The tasks that it left are stored with it: their number and their nodes. No worker claims more than the bound.
        counters = w.counters || (
            SELECT jsonb_build_object('left', count(*), 'left_tasks', coalesce(jsonb_agg(
                jsonb_build_array(h.job_id::text, h.node_id)) FILTER (WHERE h.number <= 10000), '[]'))
            FROM (SELECT q.job_id, q.node_id, row_number() OVER () AS number
                  FROM dag_task_queue q WHERE q.worker_id = w.worker_id) AS h)
    WHERE w.worker_id = ANY(:worker_ids::bigint[]) AND w.stopped_at IS NULL
      AND w.heartbeat_at <= clock() - make_interval(secs => :worker_lease_seconds)
    RETURNING worker_id
),
removed AS (
    DELETE FROM dag_task_queue
    WHERE worker_id = ANY(ARRAY(
        SELECT worker_id FROM dead
        UNION
        SELECT worker_id FROM dag_workers WHERE worker_id = ANY(:worker_ids::bigint[]) AND stopped_at IS NOT NULL))
    RETURNING *
),
reported AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, worker_id, status, error, progress,
                                  dispatched_at, claimed_at, started_at, reported_at)
    SELECT g.job_id, g.node_id, g.attempt, g.task_id, g.queue, g.worker_id, 'LOST',
           -- The only task that a worker held is the one that it was running when it died.
           (SELECT json_build_object('worker', w.host || ':' || w.pid, 'alone', g.is_alone)
            FROM dag_workers w WHERE w.worker_id = g.worker_id),
           g.progress, g.dispatched_at, g.claimed_at, g.started_at, clock()
    FROM (SELECT *, count(*) OVER (PARTITION BY worker_id) = 1 AS is_alone FROM removed) g
    RETURNING job_id
)
SELECT array_agg(job_id ORDER BY job_id) AS job_ids,
       (SELECT count(pg_notify('dagmaster_owner_' || o.owner_id, 'results'))
        FROM (SELECT DISTINCT j.owner_id
              FROM (SELECT DISTINCT job_id FROM reported) r
              CROSS JOIN LATERAL (SELECT j.owner_id FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j
              WHERE j.owner_id IS NOT NULL) o) AS notified
FROM reported

-- name: release_stopped
-- Release unclaimed tasks that were requested to stop.
WITH removed AS (
    DELETE FROM dag_task_queue q WHERE q.stop_requested_at IS NOT NULL AND q.lease_token IS NULL RETURNING q.*
),
reported AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, dispatched_at, reported_at)
    SELECT job_id, node_id, attempt, task_id, queue, 'RELEASED', dispatched_at, clock() FROM removed
    RETURNING job_id
)
SELECT count(*) AS released,
       (SELECT count(pg_notify('dagmaster_owner_' || o.owner_id, 'results'))
        FROM (SELECT DISTINCT j.owner_id
              FROM (SELECT DISTINCT job_id FROM reported) r
              CROSS JOIN LATERAL (SELECT j.owner_id FROM dag_jobs j WHERE j.id = r.job_id LIMIT 1) j
              WHERE j.owner_id IS NOT NULL) o) AS notified
FROM reported

-- name: release_jobs
-- Release every job, and wake other orchestrators to claim them.
WITH released AS (
    UPDATE dag_jobs SET owner_id = NULL, previous_owner_id = owner_id WHERE owner_id = :owner_id RETURNING id
)
SELECT count(*) AS released, CASE WHEN count(*) > 0 THEN pg_notify('dagmaster_jobs', '')::text END AS notified FROM released

-- name: deregister
-- Release every job, deregister, and wake other orchestrators to claim the jobs.
WITH released AS (
    UPDATE dag_jobs SET owner_id = NULL, previous_owner_id = owner_id WHERE owner_id = :owner_id RETURNING id
),
deregistered AS (
    UPDATE dag_orchestrators
    SET stopped_at = clock(), counters = counters || jsonb_build_object('left', (SELECT count(*) FROM released))
    WHERE owner_id = :owner_id
)
SELECT count(*) AS released, CASE WHEN count(*) > 0 THEN pg_notify('dagmaster_jobs', '')::text END AS notified FROM released

-- name: lease_machine
-- Lease a machine id that has no valid lease. Those from 960 on are for ids that are made without a store.
INSERT INTO dag_leases (name, holder, expires_at)
SELECT 'machine:' || n, :holder, clock() + make_interval(secs => :seconds)
FROM (SELECT n FROM generate_series(0, 959) AS n
      WHERE NOT EXISTS (SELECT FROM dag_leases l WHERE l.name = 'machine:' || n AND l.expires_at > clock())
      ORDER BY random() LIMIT 1) AS free
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE dag_leases.expires_at <= clock()
RETURNING name, extract(epoch FROM clock())::float8 AS now

-- name: renew_machine
-- Renew the lease of a machine id; no row is returned if it has expired.
UPDATE dag_leases SET expires_at = clock() + make_interval(secs => :seconds)
WHERE name = :name AND holder = :holder AND expires_at > clock()
RETURNING extract(epoch FROM clock())::float8 AS now

-- name: release_machine
-- Release a machine id.
DELETE FROM dag_leases WHERE name = :name AND holder = :holder
