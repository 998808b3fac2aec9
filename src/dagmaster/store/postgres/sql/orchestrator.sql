-- What an orchestrator asks and says, beside its turns.

-- name: register
-- Be known, as alive.
INSERT INTO dag_orchestrators (owner_id, host, pid, version, started_at, heartbeat_at)
VALUES (:owner_id, :host, :pid, :version, clock(), clock())
ON CONFLICT (owner_id) DO UPDATE SET heartbeat_at = clock(), stopped_at = NULL

-- name: heartbeat
-- Stay alive, unless others may believe otherwise: then the row is left as it is, and nothing comes back.
UPDATE dag_orchestrators
SET heartbeat_at = clock(), counters = :counters::jsonb
WHERE owner_id = :owner_id AND stopped_at IS NULL
  AND (heartbeat_at > clock() - make_interval(secs => :lease_seconds)
       OR clock() < pg_postmaster_start_time() + make_interval(secs => :lease_seconds))
RETURNING extract(epoch FROM clock())::float8

-- name: claim
-- Own open jobs that nobody owns, and finished ones that somebody asked something of. A `run` that lives has its own.
WITH me AS (
    SELECT owner_id, host, pid FROM dag_orchestrators WHERE owner_id = :owner_id AND stopped_at IS NULL
),
open_jobs AS (
    SELECT id, priority FROM dag_jobs
    WHERE owner_id IS NULL AND status IN ('PENDING', 'RUNNING')
      AND CASE WHEN :queue::text IS NOT NULL THEN queue = :queue::text
               ELSE queue IS NULL OR NOT EXISTS (SELECT FROM dag_workers w
                                                 WHERE dag_jobs.queue = ANY(w.queues) AND w.stopped_at IS NULL) END
    ORDER BY priority DESC, id
    LIMIT :most
    FOR NO KEY UPDATE SKIP LOCKED
),
asked AS (
    SELECT j.id, j.priority FROM dag_jobs j
    WHERE j.id IN (SELECT job_id FROM dag_inbox) AND j.owner_id IS NULL
      AND j.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND (:queue::text IS NULL OR j.queue = :queue::text)
    ORDER BY j.priority DESC, j.id
    LIMIT :most
    FOR NO KEY UPDATE SKIP LOCKED
),
wanted AS (
    SELECT id FROM (SELECT * FROM open_jobs UNION ALL SELECT * FROM asked) AS n ORDER BY priority DESC, id LIMIT :most
),
claimed AS (
    UPDATE dag_jobs j
    SET owner_id = me.owner_id, owner_epoch = j.owner_epoch + 1, event_seq = j.event_seq + 1
    FROM wanted w, me
    WHERE j.id = w.id
    RETURNING j.*
),
told AS (
    INSERT INTO dag_job_events (job_id, seq, type, at, by, data)
    SELECT c.id, c.event_seq, 'JobClaimed', clock(), :by,
           CASE WHEN p.owner_id IS NULL OR c.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
                THEN json_build_object('epoch', c.owner_epoch, 'where', me.host || ':' || me.pid)
                ELSE json_build_object('epoch', c.owner_epoch, 'where', me.host || ':' || me.pid,
                                       'before', p.host || ':' || p.pid, 'after',
                                       -- One that leaves was heard a moment before; one that died was given up later.
                                       CASE WHEN p.heartbeat_at <= p.stopped_at - make_interval(secs => :lease_seconds)
                                            THEN 'died' ELSE 'released' END) END
    FROM me CROSS JOIN claimed c
    LEFT JOIN dag_orchestrators p ON p.owner_id = c.previous_owner_id
)
SELECT id, workflow_id, version, content_hash, status, run, inputs, env, priority, ending, stopping, deadline_passed,
       extract(epoch FROM deadline_at)::float8 AS deadline_at, cancel_requested_at IS NOT NULL AS cancel_requested,
       signals, owner_epoch, event_seq, parent_job_id, parent_node_id, parent_attempt, depth, queue, workflows,
       resumed_from, redo
FROM claimed ORDER BY priority DESC, id

-- name: load_owned
-- Load the jobs that are owned, all or some: a claim again, under a new epoch. A turn of before, whose answer was lost
-- and which still runs on the server, is waited for, or finds that it holds nothing.
WITH claimed AS (
    UPDATE dag_jobs SET owner_epoch = owner_epoch + 1
    WHERE owner_id = :owner_id AND (:job_ids::bigint[] IS NULL OR id = ANY(:job_ids::bigint[]))
    RETURNING *
)
SELECT id, workflow_id, version, content_hash, status, run, inputs, env, priority, ending, stopping, deadline_passed,
       extract(epoch FROM deadline_at)::float8 AS deadline_at, cancel_requested_at IS NOT NULL AS cancel_requested,
       signals, owner_epoch, event_seq, parent_job_id, parent_node_id, parent_attempt, depth, queue, workflows,
       resumed_from, redo
FROM claimed
ORDER BY priority DESC, id

-- name: owned_job_ids
-- The jobs that are owned, by their ids.
SELECT string_agg(id::text, ',') AS ids FROM dag_jobs WHERE owner_id = :owner_id

-- name: load_nodes
-- The rows of jobs' nodes, without what they gave.
SELECT job_id, node_id, status, skip_reason, attempt, task_id, failed_attempts, lost_attempts, parent_node_id, fan_out_index,
       source_count, expanded_count, stopped, upstream_node_id, branch, extract(epoch FROM wake_at)::float8 AS wake_at,
       finished_seq, error, fingerprint, handler_version
FROM dag_node_states WHERE job_id = ANY(:job_ids::bigint[])

-- name: read_results
-- What was reported of this owner's jobs. It stays until the turn is written.
SELECT r.id, r.job_id, r.node_id, r.attempt, r.status, r.permanent, r.output, r.output_ref, r.error,
       extract(epoch FROM r.claimed_at)::float8 AS claimed_at, extract(epoch FROM r.reported_at)::float8 AS reported_at,
       r.handler_version
FROM dag_task_results r
JOIN dag_jobs j ON j.id = r.job_id
WHERE j.owner_id = :owner_id AND r.id > :after AND r.job_id <> ALL(:resting::bigint[])
ORDER BY r.id
LIMIT :most

-- name: read_commands
-- What was asked of this owner's jobs.
SELECT i.id, i.job_id, i.kind, i.body, i.sent_by, extract(epoch FROM i.created_at)::float8 AS at
FROM dag_inbox i
JOIN dag_jobs j ON j.id = i.job_id
WHERE j.owner_id = :owner_id AND i.job_id <> ALL(:resting::bigint[])
ORDER BY i.id
LIMIT :most

-- name: load_outputs
-- The outputs of nodes.
SELECT node_id, output, output_ref FROM dag_node_states
WHERE job_id = :job_id AND node_id = ANY(:node_ids::text[]) AND status = 'COMPLETED'

-- name: load_fan_out_outputs
-- The outputs of the children of a fan-out, at any depth. Its children's ids are a range.
SELECT node_id, parent_node_id, fan_out_index, status, output, output_ref, expanded_count, source_count
FROM dag_node_states
WHERE job_id = :job_id AND node_id >= :low AND node_id < :high

-- name: load_fan_out_sources
-- The frozen lists of fan-outs.
SELECT node_id, source FROM dag_node_states WHERE job_id = :job_id AND node_id = ANY(:node_ids::text[])

-- name: load_source_nodes
-- The completed nodes of a job that another was resumed from.
SELECT node_id, fingerprint, handler_version, attempt FROM dag_node_states
WHERE job_id = :job_id AND status = 'COMPLETED' AND fingerprint IS NOT NULL

-- name: handler_versions
-- The versions of each handler on live workers; of one that no live worker has, the last that was seen.
SELECT h.key AS handler, array_agg(DISTINCT h.value) FILTER (WHERE w.alive) AS live,
       (array_agg(h.value ORDER BY w.worker_id DESC))[1] AS last
FROM (SELECT worker_id, handlers,
             stopped_at IS NULL AND heartbeat_at > clock() - make_interval(secs => :worker_lease_seconds) AS alive
      FROM dag_workers) AS w
CROSS JOIN LATERAL jsonb_each_text(w.handlers) AS h
GROUP BY h.key

-- name: unfinished_children
-- The last child job of some nodes, where it did not work out.
SELECT p.job_id, p.node_id, c.id
FROM unnest(:job_ids::bigint[], :node_ids::text[]) AS p (job_id, node_id)
CROSS JOIN LATERAL (SELECT c.id, c.status FROM dag_jobs c
                    WHERE c.parent_job_id = p.job_id AND c.parent_node_id = p.node_id
                    ORDER BY c.id DESC LIMIT 1) c
WHERE c.status IN ('FAILED', 'CANCELLED')

-- name: load_source_outputs
-- The outputs of nodes, where they are still those of these fingerprints, made by these versions in these attempts.
SELECT s.node_id, s.output, s.output_ref
FROM unnest(:node_ids::text[], :fingerprints::bytea[], :versions::text[], :attempts::integer[])
     AS n (node_id, fingerprint, handler_version, attempt)
JOIN dag_node_states s ON s.job_id = :job_id AND s.node_id = n.node_id
WHERE s.status = 'COMPLETED' AND s.fingerprint = n.fingerprint AND s.attempt = n.attempt
  AND s.handler_version IS NOT DISTINCT FROM n.handler_version

-- name: load_job
-- A job as it is, without owning it.
SELECT id, workflow_id, version, content_hash, status, run, inputs, env, priority, ending, stopping, deadline_passed,
       extract(epoch FROM deadline_at)::float8 AS deadline_at, cancel_requested_at IS NOT NULL AS cancel_requested,
       signals, owner_epoch, event_seq, parent_job_id, parent_node_id, parent_attempt, depth, queue, workflows,
       resumed_from, redo
FROM dag_jobs WHERE id = :job_id

-- name: definition
-- A stored graph.
SELECT definition FROM dag_graphs WHERE content_hash = :content_hash

-- name: find_workflow
-- A published workflow: this version, or the active one.
SELECT workflow_id, version, content_hash FROM dag_workflows
WHERE workflow_id = :workflow_id AND (version = :version::integer OR (:version::integer IS NULL AND is_active))

-- name: reclaim
-- Let go of the jobs of orchestrators that died. Nobody dies of an outage of the database, nor by a scanner that itself
-- was paused.
WITH dead AS (
    SELECT owner_id FROM dag_orchestrators o
    WHERE o.heartbeat_at <= clock() - make_interval(secs => :lease_seconds) AND o.stopped_at IS NULL
      AND clock() >= pg_postmaster_start_time() + make_interval(secs => :lease_seconds)
      AND EXISTS (SELECT FROM dag_orchestrators me
                  WHERE me.owner_id = :owner_id AND me.heartbeat_at > clock() - make_interval(secs => :lease_seconds))
    FOR UPDATE SKIP LOCKED
),
buried AS (
    UPDATE dag_orchestrators o
    SET stopped_at = clock(),
        counters = o.counters || jsonb_build_object('left', (SELECT count(*) FROM dag_jobs j WHERE j.owner_id = o.owner_id))
    FROM dead WHERE o.owner_id = dead.owner_id RETURNING o.owner_id
)
UPDATE dag_jobs j SET owner_id = NULL, previous_owner_id = j.owner_id
FROM (SELECT owner_id FROM buried
      UNION
      -- One that was paused may have claimed after it was buried.
      SELECT owner_id FROM dag_orchestrators WHERE stopped_at > clock() - interval '1 hour') AS gone
WHERE j.owner_id = gone.owner_id
RETURNING j.id

-- name: expired_workers
-- Workers whose lease is over, with the same cautions; and those that were buried a moment ago: a claim may have passed
-- the burial.
SELECT worker_id FROM dag_workers w
WHERE (w.stopped_at > clock() - make_interval(secs => 5 * :worker_lease_seconds)
       OR (w.heartbeat_at <= clock() - make_interval(secs => :worker_lease_seconds) AND w.stopped_at IS NULL))
  AND clock() >= pg_postmaster_start_time() + make_interval(secs => :worker_lease_seconds)
  AND EXISTS (SELECT FROM dag_orchestrators me
              WHERE me.owner_id = :owner_id AND me.heartbeat_at > clock() - make_interval(secs => :lease_seconds))

-- name: mark_lost_tasks
-- Bury dead workers, and report what they held as lost.
WITH dead AS (
    UPDATE dag_workers w
    SET stopped_at = clock(),
        -- What it left is told with it: how much, and where to look. A worker holds less than the bound.
        counters = w.counters || (
            SELECT jsonb_build_object('left', count(*), 'left_tasks', coalesce(jsonb_agg(
                jsonb_build_array(h.job_id::text, h.node_id)) FILTER (WHERE h.number <= 10000), '[]'))
            FROM (SELECT q.job_id, q.node_id, row_number() OVER () AS number
                  FROM dag_task_queue q WHERE q.worker_id = w.worker_id) AS h)
    WHERE w.worker_id = ANY(:worker_ids::bigint[]) AND w.stopped_at IS NULL
      AND w.heartbeat_at <= clock() - make_interval(secs => :worker_lease_seconds)
    RETURNING worker_id
),
gone AS (
    DELETE FROM dag_task_queue q
    USING (SELECT worker_id FROM dead
           UNION
           SELECT worker_id FROM dag_workers WHERE worker_id = ANY(:worker_ids::bigint[]) AND stopped_at IS NOT NULL) AS n
    WHERE q.worker_id = n.worker_id
    RETURNING q.*
),
reported AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, worker_id, status, error, progress,
                                  dispatched_at, claimed_at, reported_at)
    SELECT g.job_id, g.node_id, g.attempt, g.task_id, g.queue, g.worker_id, 'LOST',
           json_build_object('worker', w.host || ':' || w.pid), g.progress, g.dispatched_at, g.claimed_at, clock()
    FROM gone g JOIN dag_workers w ON w.worker_id = g.worker_id
    RETURNING job_id
)
SELECT count(*) AS lost,
       (SELECT count(pg_notify('dagmaster_owner_' || o.owner_id, 'results'))
        FROM (SELECT DISTINCT j.owner_id FROM dag_jobs j
              WHERE j.id IN (SELECT job_id FROM reported) AND j.owner_id IS NOT NULL) o) AS told
FROM reported

-- name: release_stopped
-- Hand back the tasks that are to stop and that no worker holds.
WITH gone AS (
    DELETE FROM dag_task_queue q WHERE q.stop_requested_at IS NOT NULL AND q.worker_id IS NULL RETURNING q.*
),
reported AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, dispatched_at, reported_at)
    SELECT job_id, node_id, attempt, task_id, queue, 'RELEASED', dispatched_at, clock() FROM gone
    RETURNING job_id
)
SELECT count(*) AS released,
       (SELECT count(pg_notify('dagmaster_owner_' || o.owner_id, 'results'))
        FROM (SELECT DISTINCT j.owner_id FROM dag_jobs j
              WHERE j.id IN (SELECT job_id FROM reported) AND j.owner_id IS NOT NULL) o) AS told
FROM reported

-- name: deregister
-- Release every job, and be known as stopped. Others are told that there is something to claim.
WITH released AS (
    UPDATE dag_jobs SET owner_id = NULL, previous_owner_id = owner_id WHERE owner_id = :owner_id RETURNING id
),
gone AS (
    UPDATE dag_orchestrators
    SET stopped_at = clock(), counters = counters || jsonb_build_object('left', (SELECT count(*) FROM released))
    WHERE owner_id = :owner_id
)
SELECT count(*) AS released, CASE WHEN count(*) > 0 THEN pg_notify('dagmaster_jobs', '')::text END AS told FROM released

-- name: lease_machine
-- Hold a machine id that nobody holds.
INSERT INTO dag_leases (name, holder, expires_at)
SELECT 'machine:' || n, :holder, clock() + make_interval(secs => :seconds)
FROM (SELECT n FROM generate_series(0, 1023) AS n
      WHERE NOT EXISTS (SELECT FROM dag_leases l WHERE l.name = 'machine:' || n AND l.expires_at > clock())
      ORDER BY random() LIMIT 1) AS free
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE dag_leases.expires_at <= clock()
RETURNING name, extract(epoch FROM clock())::float8 AS now

-- name: renew_machine
-- Hold it longer. Nothing comes back if it is another's by now.
UPDATE dag_leases SET expires_at = clock() + make_interval(secs => :seconds)
WHERE name = :name AND holder = :holder AND expires_at > clock()
RETURNING extract(epoch FROM clock())::float8 AS now

-- name: release_machine
-- Let it go.
DELETE FROM dag_leases WHERE name = :name AND holder = :holder
