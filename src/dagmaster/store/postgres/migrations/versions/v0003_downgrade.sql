DROP FUNCTION dag_compatible_from();
DROP FUNCTION dag_is_served(text, text[]);
DROP INDEX dag_task_queue_exclusive;
ALTER TABLE dag_task_queue DROP COLUMN isolation;
ALTER TABLE dag_node_states DROP COLUMN isolation;
