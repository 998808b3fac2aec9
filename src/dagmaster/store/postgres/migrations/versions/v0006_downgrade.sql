DROP FUNCTION dag_send_batch;
ALTER TABLE dag_task_results DROP COLUMN batches;
ALTER TABLE dag_task_queue DROP COLUMN batches;
DROP TABLE dag_node_batches, dag_added_nodes, dag_groups, dag_dependencies;
CREATE TABLE dag_groups (
    id        bigint PRIMARY KEY,
    job_id    bigint NOT NULL REFERENCES dag_jobs ON DELETE CASCADE,
    name      text NOT NULL,
    parent_id bigint REFERENCES dag_groups
);
CREATE TABLE dag_dependencies (
    job_id    bigint NOT NULL REFERENCES dag_jobs ON DELETE CASCADE,
    from_kind text NOT NULL CHECK (from_kind IN ('task', 'group')),
    from_id   text NOT NULL,
    to_kind   text NOT NULL CHECK (to_kind IN ('task', 'group')),
    to_id     text NOT NULL,
    PRIMARY KEY (job_id, from_kind, from_id, to_kind, to_id)
);
