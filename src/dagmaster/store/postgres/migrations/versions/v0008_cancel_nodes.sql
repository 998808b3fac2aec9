-- Cancel of single nodes (ADR 0034). Services of version 0007 continue to run on this schema: an orchestrator of theirs
-- rejects the command. dag_node_states.stopped, which only fan-outs had, is set for every node whose cancel was requested.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

-- The table has unprocessed commands only: it is checked at once.
ALTER TABLE dag_inbox
    DROP CONSTRAINT dag_inbox_kind_check,
    ADD CONSTRAINT dag_inbox_kind_check
        CHECK (kind IN ('cancel', 'cancel_nodes', 'approve', 'reject', 'signal', 'resume', 'retry', 'reinject',
                        'add_nodes', 'child_finished'));
