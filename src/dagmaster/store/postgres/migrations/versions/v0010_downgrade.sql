DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN SELECT p.oid::regprocedure FROM pg_proc p
                    WHERE p.pronamespace = 'dagapp'::regnamespace AND starts_with(p.proname, 'dag_worker_') LOOP
        EXECUTE format('DROP FUNCTION %s', function);
    END LOOP;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dagmaster_worker') THEN
        RETURN;
    END IF;
    GRANT SELECT, INSERT, UPDATE ON dag_workers, dag_task_logs, dag_checkpoints, dag_handlers, dag_node_batches
        TO dagmaster_worker;
    GRANT SELECT, UPDATE, DELETE ON dag_task_queue TO dagmaster_worker;
    GRANT SELECT, INSERT ON dag_task_results, dag_added_nodes, dag_groups, dag_dependencies TO dagmaster_worker;
    GRANT SELECT (id, owner_id, workflow_id, version, trace_parent) ON dag_jobs TO dagmaster_worker;
    GRANT SELECT, INSERT, UPDATE, DELETE ON dag_leases TO dagmaster_worker;
    GRANT EXECUTE ON FUNCTION dag_send_batch TO dagmaster_worker;
END $$;
ALTER TABLE dag_workers DROP COLUMN secret_digest;
