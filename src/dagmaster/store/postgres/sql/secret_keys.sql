-- The keys of secret inputs by their ids, and the rows that are sealed with them.

-- name: registered_keys
-- All registered keys, the current one first.
SELECT key_id, verifier, is_current FROM dag_secret_keys
WHERE key_id <> 'clear'
ORDER BY is_current DESC, registered_at DESC, key_id

-- name: allows_clear
-- Whether secret inputs are stored in clear until there is a key: they were before there were keys.
SELECT EXISTS (SELECT FROM dag_secret_keys WHERE key_id = 'clear')
   AND NOT EXISTS (SELECT FROM dag_secret_keys WHERE is_current) AS allows_clear

-- name: register_first
-- Register a key as the current one, unless there is a current one.
INSERT INTO dag_secret_keys (key_id, verifier, is_current) VALUES (:key_id, :verifier, true) ON CONFLICT DO NOTHING

-- name: retire
-- Let a key that is not this one no longer be the current one.
UPDATE dag_secret_keys SET is_current = false WHERE is_current AND key_id <> :key_id

-- name: make_current
-- Make a key the current one, and register it if it is not registered.
INSERT INTO dag_secret_keys (key_id, verifier, is_current) VALUES (:key_id, :verifier, true)
ON CONFLICT (key_id) DO UPDATE SET verifier = excluded.verifier, is_current = true

-- name: forget
-- Remove a key that is not the current one.
DELETE FROM dag_secret_keys WHERE key_id = :key_id AND NOT is_current

-- name: graphs
-- The graphs with secret inputs, and the names of these.
SELECT g.content_hash, string_agg(i.key, ',') AS names
FROM dag_graphs g
CROSS JOIN LATERAL json_each(CASE WHEN json_typeof(g.definition -> 'inputs') = 'object' THEN g.definition -> 'inputs' END) AS i
WHERE i.value ->> 'secret' = 'true'
GROUP BY g.content_hash

-- name: jobs
-- Jobs of some graphs, oldest first.
SELECT id::text AS id, id::text AS job_id, workflow_id, content_hash, inputs::text AS text
FROM dag_jobs
WHERE id > :after AND content_hash = ANY(:hashes::text[])
ORDER BY id
LIMIT :limit

-- name: tasks
-- Queued tasks with secrets, oldest first.
SELECT q.task_id::text AS id, q.job_id::text AS job_id, j.workflow_id, q.secrets::text AS text,
       (SELECT string_agg(name, ',') FROM json_object_keys(q.secrets -> 'inputs') AS name) AS names
FROM dag_task_queue q
JOIN dag_jobs j ON j.id = q.job_id
WHERE q.task_id > :after AND q.secrets IS NOT NULL AND json_typeof(q.secrets -> 'inputs') = 'object'
ORDER BY q.task_id
LIMIT :limit

-- name: rewrite_job
-- Replace the inputs of a job, if they are as they were read.
UPDATE dag_jobs SET inputs = :text::json WHERE id = :id AND inputs::text = :before

-- name: rewrite_task
-- Replace the secrets of a queued task, if they are as they were read.
UPDATE dag_task_queue SET secrets = :text::json WHERE task_id = :id AND secrets::text = :before

-- name: signing_secrets
-- The secrets with which callbacks are signed, by their ids.
SELECT secret_id AS id, sealed::text AS text FROM dag_signing_secrets
WHERE secret_id > :after
ORDER BY secret_id
LIMIT :limit

-- name: rewrite_signing_secret
-- Replace a signing secret, if it is as it was read.
UPDATE dag_signing_secrets SET sealed = :text::json WHERE secret_id = :id AND sealed::text = :before
