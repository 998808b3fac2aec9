-- The node whose task added a batch: when it is run again from the beginning, what it added is superseded (ADR 0035).
-- Services of version 0008 continue to run on this schema: of batches that they add, it is not known.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

ALTER TABLE dag_node_batches
    ADD COLUMN added_by text COLLATE "C",
    ADD COLUMN is_superseded boolean NOT NULL DEFAULT false;
