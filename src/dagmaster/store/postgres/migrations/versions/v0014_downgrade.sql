SET LOCAL lock_timeout = '10s';
DROP TABLE dag_api_requests;
DROP TABLE dag_platforms;
