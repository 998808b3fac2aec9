-- The node whose task added a batch: when it is run again from the beginning, what it added is superseded (ADR 0035).
-- And why the owner of the job rejected one: the role of a worker cannot read events. Services of version 0008 continue to
-- run on this schema: of batches that they add or reject, neither is known.

-- A statement that waits for a lock stops all that come after it: give up instead, and let the operator try again.
SET LOCAL lock_timeout = '10s';

ALTER TABLE dag_node_batches
    ADD COLUMN added_by text COLLATE "C",
    ADD COLUMN is_superseded boolean NOT NULL DEFAULT false,
    ADD COLUMN rejection text;
