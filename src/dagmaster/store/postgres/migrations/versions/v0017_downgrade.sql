SET LOCAL lock_timeout = '10s';
ALTER TABLE dag_handlers DROP COLUMN replaced;
