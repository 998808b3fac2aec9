-- A narrowed key without its limits would be one without limits.
DELETE FROM dag_api_keys WHERE starts_with(digest, 'narrowed:');
ALTER TABLE dag_api_keys DROP COLUMN queues, DROP COLUMN handlers, DROP COLUMN workflows, DROP COLUMN is_own,
    DROP COLUMN is_local;
DROP FUNCTION dag_may_have_handler;
DROP TABLE dag_browser_sessions;
DROP TABLE dag_handler_changes;
DROP TABLE dag_handler_trust;
DROP INDEX dag_handlers_owner;
ALTER TABLE dag_handlers DROP COLUMN owner, DROP COLUMN trusted_at;
ALTER TABLE dag_workers DROP COLUMN offered;
-- The longer limit of submitters stays: with the shorter one, jobs that have longer ones could not be changed any more.
