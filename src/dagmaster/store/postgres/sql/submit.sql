-- The parts of the statement that stores jobs.

-- name: jobs
-- The jobs, each with its first event.
new AS (
    SELECT * FROM unnest(:ids::bigint[], :workflow_ids::text[], :versions::integer[], :hashes::text[], :inputs::text[],
                         :envs::text[], :priorities::smallint[], :keys::text[], :body_hashes::text[],
                         :submitters::text[], :correlations::text[], :queues::text[],
                         :workflows::text[], :resumed_froms::bigint[], :redos::text[], :names::text[],
                         :trace_parents::text[], :hiddens::boolean[])
         AS n (id, workflow_id, version, content_hash, inputs, env, priority, idempotency_key, body_hash, submitted_by,
               correlation_id, queue, workflows, resumed_from, redo, name, trace_parent, is_hidden)
),
added AS (
    INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, env, priority, idempotency_key, body_hash,
                          submitted_by, correlation_id, queue, workflows, resumed_from, redo, event_seq,
                          name, trace_parent, is_hidden, created_at, updated_at)
    SELECT id, workflow_id, version, content_hash, inputs::json, env::json, priority, idempotency_key, body_hash,
           submitted_by, correlation_id, queue, workflows::json, resumed_from, redo::json, 1, name,
           trace_parent, is_hidden, now.at, now.at
    FROM new CROSS JOIN (SELECT clock() AS at) AS now
    ON CONFLICT (submitted_by, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, submitted_by, queue, resumed_from, created_at
),
events_appended AS (
    INSERT INTO dag_job_events (job_id, seq, type, at, by, data)
    SELECT id, 1, 'JobSubmitted', created_at, coalesce(nullif(submitted_by, ''), 'anonymous'),
           CASE WHEN resumed_from IS NOT NULL THEN json_build_object('resumed_from', resumed_from::text) END
    FROM added
)

-- name: audited
-- Their audit entries. Of a job whose idempotency key is in use there is none.
{@audit_entries},
audited AS (
    INSERT INTO dag_audit (actor, action, object_kind, object_id, request_id, details)
    SELECT actor, action, object_kind, object_id, nullif(request_id, ''), details::jsonb
    FROM entries JOIN added ON added.id = entries.object_id::bigint
)

-- name: stored
-- The ids of the new jobs. Orchestrators are woken, unless a job was unowned already.
SELECT string_agg(id::text, ',') AS ids,
       CASE WHEN count(*) > 0
             AND (bool_or(queue IS NOT NULL)
                  -- In the order of an index. EXISTS would read the whole table for the first unowned job.
                  OR (SELECT id FROM dag_jobs
                      WHERE owner_id IS NULL AND status IN ('PENDING', 'RUNNING') AND queue IS NULL
                      ORDER BY owner_id, priority DESC, id LIMIT 1) IS NULL)
            THEN pg_notify('dagmaster_jobs', '')::text END AS notified
FROM added
