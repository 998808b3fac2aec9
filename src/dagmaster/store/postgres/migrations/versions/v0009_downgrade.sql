SET LOCAL lock_timeout = '10s';
ALTER TABLE dag_node_batches DROP COLUMN added_by, DROP COLUMN is_superseded, DROP COLUMN rejection;
