SET LOCAL lock_timeout = '10s';
DELETE FROM dag_inbox WHERE kind = 'cancel_nodes';
ALTER TABLE dag_inbox
    DROP CONSTRAINT dag_inbox_kind_check,
    ADD CONSTRAINT dag_inbox_kind_check
        CHECK (kind IN ('cancel', 'approve', 'reject', 'signal', 'resume', 'retry', 'reinject', 'add_nodes',
                        'child_finished'));
