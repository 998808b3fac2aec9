-- What is new in many jobs, for the streams of a server. Each query looks up every job by its primary key.

-- name: announce
-- Ask the owners of jobs to notify of each turn: once for each list of ids that fits a payload.
SELECT count(pg_notify('dagmaster_watch', n.ids)) FROM unnest(:lists::text[]) AS n (ids)

-- name: events
-- The next audit events of jobs after a number each.
SELECT n.place, e.seq, e.type, extract(epoch FROM e.at)::float8 AS at, e.by, e.node_id, e.attempt, e.data
FROM unnest(:places::integer[], :job_ids::bigint[], :afters::integer[]) AS n (place, job_id, after)
CROSS JOIN LATERAL (SELECT * FROM dag_job_events e
                    WHERE e.job_id = n.job_id AND e.seq > n.after ORDER BY e.seq LIMIT :limit) e
ORDER BY n.place, e.seq

-- name: child_counts
-- How many children of fan-outs have which status. The ids of the children of a fan-out are a range.
SELECT f.job_id, f.fan_out, c.status, c.nodes, c.first_started_at
FROM unnest(:job_ids::bigint[], :fan_outs::text[]) AS f (job_id, fan_out)
CROSS JOIN LATERAL (
    SELECT dag_displayed_node_status(n.status, q.worker_id, q.started_at) AS status, count(*) AS nodes,
           extract(epoch FROM min(coalesce(n.started_at, q.started_at)))::float8 AS first_started_at
    FROM dag_node_states n
    LEFT JOIN LATERAL (SELECT * FROM dag_task_queue q
                       WHERE n.status = 'DISPATCHED' AND q.task_id = n.task_id LIMIT 1) q ON true
    WHERE n.job_id = f.job_id AND n.node_id >= f.fan_out || '__' AND n.node_id < f.fan_out || '_`'
      AND n.parent_node_id = f.fan_out AND n.skip_reason IS DISTINCT FROM 'superseded'
    GROUP BY 1
) c

-- name: claimed_tasks
-- The tasks of jobs that workers have claimed.
SELECT {@queued_task}
FROM unnest(:job_ids::bigint[]) AS j (id)
CROSS JOIN LATERAL (
    SELECT t.*
    FROM dag_node_states n
    CROSS JOIN LATERAL (SELECT * FROM dag_task_queue q
                        WHERE q.task_id = n.task_id AND q.worker_id IS NOT NULL LIMIT 1) t
    WHERE n.job_id = j.id AND n.status = 'DISPATCHED'
    ORDER BY n.node_id
    LIMIT :limit
) q
ORDER BY q.job_id, q.node_id
