DROP TABLE dag_schedules, dag_pool_slots, dag_outbox, dag_checkpoints, dag_task_logs, dag_job_events, dag_inbox,
    dag_task_results, dag_task_queue, dag_dependencies, dag_groups, dag_task_attempts, dag_node_states, dag_jobs,
    dag_leases, dag_workers, dag_orchestrators, dag_workflows, dag_graphs;
DROP FUNCTION clock();
