-- What the trust of an administrator replaced comes back when that is taken away (ADR 0040).

SET LOCAL lock_timeout = '10s';

-- {by}: the caller whose contract this one is, or whose change it has; with what there was before: {owner, definition,
-- content_hash, published_at, trusted_at}. NULL: nobody decided about this contract, or it is the owner's first one.
ALTER TABLE dag_handlers ADD COLUMN replaced json;
