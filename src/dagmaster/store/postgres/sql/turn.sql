-- What a turn writes. The parts that have rows are combined into one statement, which is one transaction: `jobs` first,
-- and everything else joined to the rows that it returns. A job that is not owned any more returns no row, so that
-- nothing of it is written. `notified` comes before it: a job with a notified result that differs from the stored one
-- returns no row either.
--
-- `rows(name: column type, …)` are the rows of a part: arrays, or VALUES if the turn is of one job and each part has one
-- row. What else differs between these two statements is in turn_many.sql and turn_one.sql under the same names, and
-- written `{name}` here. The job of a row to write is `n.job_id`, of a row that is read first `t.job_id`.

-- name: notified
-- The jobs with a result in a notification that is not stored, not stored any more, or stored differently.
refuted AS (
    SELECT n.job_id
    FROM rows(notified: id bigint, job_id bigint, node_id text, attempt integer, status text,
            permanent boolean, output text, output_ref text, error text, started_at float8,
            reported_at float8, handler_version text) AS n
    {join_result}
    WHERE (r.job_id = n.job_id AND r.node_id = n.node_id AND r.attempt = n.attempt
           AND r.status = n.status AND r.permanent = n.permanent
           AND r.output::text IS NOT DISTINCT FROM n.output
           AND r.output_ref IS NOT DISTINCT FROM n.output_ref
           AND r.error::text IS NOT DISTINCT FROM n.error
           AND extract(epoch FROM r.started_at)::float8 IS NOT DISTINCT FROM n.started_at
           AND extract(epoch FROM r.reported_at)::float8 = n.reported_at
           AND r.handler_version IS NOT DISTINCT FROM n.handler_version
           -- Checkpoints and added nodes are not in notifications: the result has to be read.
           AND r.progress -> 'checkpoints' IS NULL AND r.batches IS NULL) IS NOT TRUE
)

-- name: nothing_notified
-- All results were read from the table: the planner removes this part.
refuted AS (SELECT 0::bigint AS job_id WHERE false)

-- name: jobs
-- Lock and check each job of the turn, and write its row.
owned AS (
    UPDATE dag_jobs j
    SET event_seq = n.event_seq, status = n.status, run = n.run, ending = n.ending, stopping = n.stopping,
        deadline_passed = n.deadline_passed, deadline_at = to_timestamp(n.deadline_at),
        cancel_requested_at = CASE WHEN n.cancel_requested THEN coalesce(j.cancel_requested_at, :now) END,
        signals = n.signals::json,
        -- The result of a finished job is kept when a later command changes nothing, and removed when the job is reopened.
        result = CASE WHEN n.finishes THEN n.result::json WHEN n.is_finished THEN j.result END,
        result_ref = CASE WHEN n.finishes THEN n.result_ref WHEN n.is_finished THEN j.result_ref END,
        error = CASE WHEN n.finishes THEN n.error::json WHEN n.is_finished THEN j.error END,
        started_at = coalesce(j.started_at, CASE WHEN n.status <> 'PENDING' THEN :now END),
        finished_at = CASE WHEN n.finishes THEN :now WHEN n.is_finished THEN j.finished_at END,
        owner_id = CASE WHEN n.is_released THEN NULL ELSE j.owner_id END, updated_at = :now
    FROM rows(jobs: job_id bigint, epoch integer, event_seq integer, status text, run integer,
            ending boolean, stopping boolean, deadline_passed boolean, deadline_at float8,
            cancel_requested boolean, signals text, result text, result_ref text, error text,
            finishes boolean, is_finished boolean, is_released boolean, seq_before integer) AS n
    {where_job}
      -- A turn names the state that it leaves. IS NOT DISTINCT FROM avoids the index of owners, which would scan all
      -- owned jobs.
      AND j.owner_id IS NOT DISTINCT FROM :owner_id AND j.owner_epoch = n.epoch AND j.event_seq = n.seq_before
      AND {is_confirmed}
    RETURNING j.id
)

-- name: finished
-- Queue finished jobs for the metrics (sql/metrics.sql).
to_count AS (
    INSERT INTO dag_metric_pending (job_id, run)
    SELECT n.job_id, n.run FROM rows(finished: job_id bigint, run integer) AS n
    WHERE {is_owned}
)

-- name: results
-- Delete the processed results; each becomes a finished attempt, a failed one if it is among the rejections.
processed AS (
    DELETE FROM dag_task_results t
    WHERE t.id = ANY(ARRAY(
        SELECT n.id FROM rows(results: id bigint, job_id bigint) AS n
        WHERE {is_owned}))
      AND {is_of_owned}
    RETURNING *
),
attempts AS (
    INSERT INTO dag_task_attempts (job_id, node_id, attempt, task_id, queue, worker_id, status, error, metrics, progress,
                                   dispatched_at, claimed_at, started_at, completed_at)
    SELECT job_id, node_id, attempt, task_id, queue, worker_id,
           -- Keys of jsonb are found by a binary search.
           CASE WHEN :rejections::jsonb -> id::text IS NULL THEN status ELSE 'FAILED' END,
           coalesce((:rejections::jsonb -> id::text)::json, error), metrics, progress, dispatched_at, claimed_at, started_at,
           reported_at
    FROM processed
    ON CONFLICT DO NOTHING
)

-- name: reopened
-- A completed node that is reopened starts from the beginning: its checkpoint is of the work that completed. What is
-- created again may be something else of the same name.
checkpoints_deleted AS (
    DELETE FROM dag_checkpoints
    WHERE ctid = ANY(ARRAY(
        SELECT c.row_id
        FROM rows(reopened: job_id bigint, node_id text, is_superseded boolean) AS n
        CROSS JOIN LATERAL (SELECT s.status FROM dag_node_states s
                            WHERE s.job_id = n.job_id AND s.node_id = n.node_id LIMIT 1) s
        CROSS JOIN LATERAL (SELECT c.ctid AS row_id FROM dag_checkpoints c
                            WHERE c.job_id = n.job_id AND c.node_id = n.node_id LIMIT 1) c
        WHERE (s.status = 'COMPLETED' OR n.is_superseded) AND {is_owned}))
)

-- name: commands
-- Delete the processed commands.
processed_commands AS (
    DELETE FROM dag_inbox
    WHERE ctid = ANY(ARRAY(
        SELECT t.row_id
        FROM rows(commands: id bigint) AS n
        CROSS JOIN LATERAL (SELECT i.ctid AS row_id, i.job_id FROM dag_inbox i WHERE i.id = n.id LIMIT 1) t
        WHERE {is_of_owned}))
)

-- name: new_nodes
-- Insert nodes that have no row yet.
nodes_added AS (
    INSERT INTO dag_node_states (job_id, node_id, status, skip_reason, attempt, task_id, failed_attempts, lost_attempts,
                                 shared_losses, parent_node_id, fan_out_index, source, source_count, expanded_count, stopped,
                                 upstream_node_id, branch, wake_at, finished_seq, output, output_ref, error, started_at,
                                 finished_at, fingerprint, handler_version, updated_at)
    SELECT n.job_id, n.node_id, n.status, n.skip_reason, n.attempt, n.task_id, n.failed_attempts, n.lost_attempts,
           n.shared_losses, n.parent_node_id, n.fan_out_index, n.source::json, n.source_count, n.expanded_count, n.stopped,
           n.upstream_node_id, n.branch, to_timestamp(n.wake_at), n.finished_seq, n.output::json, n.output_ref,
           n.error::json, to_timestamp(n.started_at), CASE WHEN n.finished_seq IS NOT NULL THEN :now END,
           n.fingerprint, n.handler_version, :now
    FROM rows(new_nodes: job_id bigint, node_id text, status text, skip_reason text, attempt integer,
            task_id bigint, failed_attempts integer, lost_attempts integer, shared_losses smallint,
            parent_node_id text, fan_out_index integer, source text, source_count integer,
            expanded_count integer, stopped boolean, upstream_node_id text, branch text,
            wake_at float8, finished_seq integer, output text, output_ref text, error text,
            started_at float8, fingerprint bytea, handler_version text) AS n
    WHERE {is_owned}
)

-- name: nodes
-- Update changed nodes. Without a new source or output the stored one is kept; an open node has no output.
nodes_changed AS (
    UPDATE dag_node_states s
    SET status = n.status, skip_reason = n.skip_reason, attempt = n.attempt, task_id = coalesce(n.task_id, s.task_id),
        failed_attempts = n.failed_attempts, lost_attempts = n.lost_attempts, shared_losses = n.shared_losses, source = coalesce(n.source::json, s.source),
        source_count = n.source_count, expanded_count = n.expanded_count, stopped = n.stopped,
        upstream_node_id = n.upstream_node_id, branch = n.branch, wake_at = to_timestamp(n.wake_at),
        finished_seq = n.finished_seq, error = n.error::json, fingerprint = n.fingerprint,
        handler_version = n.handler_version,
        output = CASE WHEN n.status <> 'COMPLETED' THEN NULL
                      WHEN n.output IS NULL AND n.output_ref IS NULL THEN s.output ELSE n.output::json END,
        output_ref = CASE WHEN n.status <> 'COMPLETED' THEN NULL
                          WHEN n.output IS NULL AND n.output_ref IS NULL THEN s.output_ref ELSE n.output_ref END,
        started_at = coalesce(to_timestamp(n.started_at), CASE WHEN n.attempt = s.attempt THEN s.started_at END),
        finished_at = CASE WHEN n.finished_seq = s.finished_seq THEN s.finished_at
                           WHEN n.finished_seq IS NOT NULL THEN :now END,
        updated_at = :now
    FROM rows(nodes: job_id bigint, node_id text, status text, skip_reason text, attempt integer,
            task_id bigint, failed_attempts integer, lost_attempts integer, shared_losses smallint,
            source text, source_count integer, expanded_count integer, stopped boolean,
            upstream_node_id text, branch text, wake_at float8, finished_seq integer, output text,
            output_ref text, error text, started_at float8, fingerprint bytea,
            handler_version text) AS n
    {where_node} AND {is_owned}
)

-- name: batches
-- Accept batches of added nodes. A rejected one, without an order, gives up its key and its rows: the same call of a later
-- attempt adds its nodes, and their ids can be used again.
batches_decided AS (
    UPDATE dag_node_batches b
    SET accepted_order = n.accepted_order, rejection = n.rejection,
        node_id = CASE WHEN n.accepted_order IS NOT NULL THEN b.node_id END,
        call_number = CASE WHEN n.accepted_order IS NOT NULL THEN b.call_number END,
        digest = CASE WHEN n.accepted_order IS NOT NULL THEN b.digest END
    FROM rows(batches: job_id bigint, number integer, accepted_order integer, rejection text) AS n
    {where_batch} AND b.accepted_order IS NULL AND {is_owned}
    RETURNING b.job_id, b.number, b.accepted_order
),
rejected AS (SELECT job_id, number FROM batches_decided WHERE accepted_order IS NULL),
rejected_nodes AS (
    DELETE FROM dag_added_nodes
    WHERE job_id = ANY(ARRAY(SELECT job_id FROM rejected)) AND batch = ANY(ARRAY(SELECT number FROM rejected))
      AND (job_id, batch) IN (SELECT job_id, number FROM rejected)
),
rejected_groups AS (
    DELETE FROM dag_groups
    WHERE job_id = ANY(ARRAY(SELECT job_id FROM rejected)) AND batch = ANY(ARRAY(SELECT number FROM rejected))
      AND (job_id, batch) IN (SELECT job_id, number FROM rejected)
),
rejected_dependencies AS (
    DELETE FROM dag_dependencies
    WHERE job_id = ANY(ARRAY(SELECT job_id FROM rejected)) AND batch = ANY(ARRAY(SELECT number FROM rejected))
      AND (job_id, batch) IN (SELECT job_id, number FROM rejected)
)

-- name: adders
-- Nodes that are run again from the beginning add their nodes again: their batches are superseded, and give up their keys.
adders AS (
    SELECT n.job_id, n.node_id FROM rows(adders: job_id bigint, node_id text) AS n
    WHERE {is_owned}
),
batches_superseded AS (
    UPDATE dag_node_batches
    SET is_superseded = true, node_id = NULL, call_number = NULL, digest = NULL
    WHERE job_id = ANY(ARRAY(SELECT DISTINCT job_id FROM adders)) AND accepted_order IS NOT NULL
      AND ((job_id, added_by) IN (SELECT job_id, node_id FROM adders)) IS TRUE
)

-- name: tasks
-- Put tasks into their queues.
dispatched AS (
    INSERT INTO dag_task_queue (task_id, job_id, node_id, attempt, queue, priority, handler, params, secrets,
                                timeout_seconds, isolation, dispatched_at, stop_requested_at)
    SELECT n.task_id, n.job_id, n.node_id, n.attempt, n.queue, n.priority, n.handler, n.params::json, n.secrets::json,
           n.timeout_seconds, n.isolation, :now, CASE WHEN n.is_stopped THEN :now END
    FROM rows(tasks: task_id bigint, job_id bigint, node_id text, attempt integer, queue text,
            priority smallint, handler text, params text, secrets text, timeout_seconds float8,
            isolation smallint, is_stopped boolean) AS n
    WHERE {is_owned}
)

-- name: withdrawals
-- Withdraw unclaimed tasks: they finish, as if they had been reported. A claimed one stays in the queue.
withdrawn AS (
    SELECT q.*, n.status, n.error
    FROM rows(withdrawals: task_id bigint, status text, error text) AS n
    CROSS JOIN LATERAL (SELECT t.task_id, t.job_id, t.node_id, t.attempt, t.queue, t.dispatched_at
                        FROM dag_task_queue t
                        WHERE t.task_id = n.task_id AND t.lease_token IS NULL AND {is_of_owned}
                        FOR UPDATE) q
),
withdrawn_gone AS (
    DELETE FROM dag_task_queue WHERE task_id = ANY(ARRAY(SELECT task_id FROM withdrawn))
),
withdrawn_results AS (
    INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, error, dispatched_at, reported_at)
    SELECT job_id, node_id, attempt, task_id, queue, status, error::json, dispatched_at, :now FROM withdrawn
)

-- name: stops
-- Request tasks to stop. Unclaimed ones are released afterwards (`release_stopped`): to withdraw them here could miss one
-- that is being claimed.
stopped AS (
    UPDATE dag_task_queue t
    SET stop_requested_at = :now
    WHERE t.task_id = ANY(ARRAY(SELECT task_id FROM rows(stops: task_id bigint) AS n))
      AND {is_of_owned}
    RETURNING t.worker_id
)

-- name: children
-- Start child jobs, each with its first event.
started AS (
    INSERT INTO dag_jobs ({@child_columns}, parent_job_id, depth, event_seq, created_at, updated_at)
    SELECT {@child_values}, p.id, p.depth + 1, 1, :now, :now
    FROM rows(children: {@child_rows}, job_id bigint) AS n
    CROSS JOIN LATERAL (SELECT * FROM dag_jobs p WHERE p.id = n.job_id LIMIT 1) p
    WHERE {is_owned}
    RETURNING id, resumed_from
),
started_events AS (
    INSERT INTO dag_job_events (job_id, seq, type, at, by, data)
    SELECT id, 1, 'JobSubmitted', :now, :by,
           CASE WHEN resumed_from IS NOT NULL THEN json_build_object('resumed_from', resumed_from::text) END
    FROM started
)

-- name: cancelled_children
-- Send a cancel to child jobs. The children of a parent are read once, however many of its nodes are cancelled.
cancelled AS (
    SELECT n.*
    FROM rows(cancelled_children: job_id bigint, node_id text, attempt integer) AS n
    WHERE {is_owned}
),
cancel_commands AS (
    INSERT INTO dag_inbox (job_id, kind, body, sent_by, created_at)
    SELECT c.id, 'cancel', '{}', :by, :now
    FROM dag_jobs c
    WHERE c.parent_job_id = ANY(ARRAY(SELECT DISTINCT job_id FROM cancelled))
      AND ((c.parent_job_id, c.parent_node_id, c.parent_attempt) IN (SELECT job_id, node_id, attempt FROM cancelled)) IS TRUE
    RETURNING job_id
)

-- name: parents
-- Send the outcome of finished jobs to their parents.
parent_commands AS (
    INSERT INTO dag_inbox (job_id, kind, body, sent_by, created_at)
    SELECT n.parent_job_id, 'child_finished', n.body::json, :by, :now
    FROM rows(parents: job_id bigint, parent_job_id bigint, body text) AS n
    WHERE {is_owned}
    RETURNING job_id
)

-- name: events
-- Append audit events.
events_appended AS (
    INSERT INTO dag_job_events (job_id, seq, type, at, by, node_id, attempt, data)
    SELECT n.job_id, n.seq, n.type, :now, coalesce(n.by, :by), n.node_id, n.attempt, n.data::json
    FROM rows(events: job_id bigint, seq integer, type text, by text, node_id text, attempt integer,
            data text) AS n
    WHERE {is_owned}
)

-- name: notify_queues
-- Wake the workers of queues.
(SELECT count(pg_notify('dagmaster_tasks', n.queue)) FROM rows(notify_queues: queue text) AS n)

-- name: notify_stops
-- Wake the workers that have a task to stop.
(SELECT count(pg_notify('dagmaster_worker_' || worker_id, '')) FROM (SELECT DISTINCT worker_id FROM stopped WHERE worker_id IS NOT NULL) AS n)

-- name: notify_children
-- Wake the orchestrators that may claim the new jobs.
(SELECT pg_notify('dagmaster_jobs', '')::text)

-- name: notify_cancelled
-- Wake the owners of cancelled child jobs.
(SELECT count(pg_notify(coalesce('dagmaster_owner_' || j.owner_id, 'dagmaster_jobs'), 'commands'))
 FROM dag_jobs j WHERE j.id = ANY(ARRAY(SELECT job_id FROM cancel_commands)))

-- name: notify_parents
-- Wake the owners of parent jobs.
(SELECT count(pg_notify(coalesce('dagmaster_owner_' || j.owner_id, 'dagmaster_jobs'), 'commands'))
 FROM dag_jobs j WHERE j.id = ANY(ARRAY(SELECT job_id FROM parent_commands)))

-- name: notify_readers
-- Wake the readers of jobs that finished or processed a command.
(SELECT count(pg_notify('dagmaster_job_' || n.id, '')) FROM rows(notify_readers: id bigint) AS n)

-- name: notify_feeds
-- Wake the feeds that watch jobs.
(SELECT count(pg_notify('dagmaster_turns', n.id::text)) FROM rows(notify_feeds: id bigint) AS n)
