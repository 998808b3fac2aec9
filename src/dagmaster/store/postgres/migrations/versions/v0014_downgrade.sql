SET LOCAL lock_timeout = '10s';
DROP TABLE dag_api_requests;
DROP FUNCTION dag_play_callbacks();
ALTER TABLE dag_api_keys DROP COLUMN is_sandbox;
DROP TABLE dag_tenant_usage;
DROP FUNCTION dag_count_requests();
DROP TABLE dag_platforms;
UPDATE dag_tenants SET platforms = '{}' WHERE name = 'default';
