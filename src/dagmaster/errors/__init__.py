"""Every exception of dagmaster: a stable machine `code`, a `category`, and a sentence.

Programs match on `code`; interfaces map `category` (see `OUTCOMES`) to an exit code or an HTTP status; people
read the sentence. The docstring of a class is its sentence if none is given. `docs/reference/errors.md` is
generated from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.errors.base import OUTCOMES as OUTCOMES
from dagmaster.errors.base import Category as Category
from dagmaster.errors.base import DagmasterError as DagmasterError
from dagmaster.errors.base import Problem as Problem
from dagmaster.errors.base import ProblemsError
from dagmaster.errors.of_callbacks import CallbackNotFound as CallbackNotFound
from dagmaster.errors.of_callbacks import CallbackUrlInvalid as CallbackUrlInvalid
from dagmaster.errors.of_callbacks import EndpointNotFound as EndpointNotFound
from dagmaster.errors.of_callbacks import SigningSecretNotFound as SigningSecretNotFound
from dagmaster.errors.of_callbacks import SigningSecretsInUse as SigningSecretsInUse
from dagmaster.errors.of_handlers import EntrypointInvalid as EntrypointInvalid
from dagmaster.errors.of_handlers import HandlerInvalid as HandlerInvalid
from dagmaster.errors.of_handlers import HandlerNotFound as HandlerNotFound
from dagmaster.errors.of_handlers import HandlerTrustRejected as HandlerTrustRejected
from dagmaster.errors.of_handlers import PermanentError as PermanentError
from dagmaster.errors.of_handlers import ServicesNotFound as ServicesNotFound
from dagmaster.errors.of_handlers import invalid_input as invalid_input
from dagmaster.errors.of_secrets import SecretsKeyMissing as SecretsKeyMissing
from dagmaster.errors.of_secrets import SecretsKeyWrong as SecretsKeyWrong
from dagmaster.errors.of_secrets import SecretUnreadable as SecretUnreadable
from dagmaster.errors.of_workflows import WorkflowChanged as WorkflowChanged
from dagmaster.errors.of_workflows import WorkflowEditRejected as WorkflowEditRejected
from dagmaster.errors.of_workflows import WorkflowNotFound as WorkflowNotFound
from dagmaster.errors.of_workflows import WorkflowVersionConflict as WorkflowVersionConflict
from dagmaster.errors.partners import PlatformInvalid as PlatformInvalid
from dagmaster.errors.partners import PlatformNotFound as PlatformNotFound
from dagmaster.errors.partners import PlatformRefsInvalid as PlatformRefsInvalid
from dagmaster.errors.partners import RequestNotFound as RequestNotFound
from dagmaster.errors.partners import RequestQuotaExceeded as RequestQuotaExceeded
from dagmaster.errors.partners import RequestRejected as RequestRejected
from dagmaster.errors.partners import RequestsUnavailable as RequestsUnavailable
from dagmaster.errors.requests import ApiKeyInvalid as ApiKeyInvalid
from dagmaster.errors.requests import ApiKeyNotFound as ApiKeyNotFound
from dagmaster.errors.requests import ApiKeyRejected as ApiKeyRejected
from dagmaster.errors.requests import BrowserSessionNotFound as BrowserSessionNotFound
from dagmaster.errors.requests import CheckLimitExceeded as CheckLimitExceeded
from dagmaster.errors.requests import ChecksBusy as ChecksBusy
from dagmaster.errors.requests import CursorInvalid as CursorInvalid
from dagmaster.errors.requests import DrainRejected as DrainRejected
from dagmaster.errors.requests import HeadersTooLarge as HeadersTooLarge
from dagmaster.errors.requests import HostRejected as HostRejected
from dagmaster.errors.requests import IssuerUnavailable as IssuerUnavailable
from dagmaster.errors.requests import JobQuotaExceeded as JobQuotaExceeded
from dagmaster.errors.requests import KeyNarrowed as KeyNarrowed
from dagmaster.errors.requests import LeaseLost as LeaseLost
from dagmaster.errors.requests import LoginRejected as LoginRejected
from dagmaster.errors.requests import MediaTypeUnsupported as MediaTypeUnsupported
from dagmaster.errors.requests import OriginRejected as OriginRejected
from dagmaster.errors.requests import PageNotFound as PageNotFound
from dagmaster.errors.requests import QueryInvalid as QueryInvalid
from dagmaster.errors.requests import QuotaExceeded as QuotaExceeded
from dagmaster.errors.requests import RateLimitExceeded as RateLimitExceeded
from dagmaster.errors.requests import RequestInvalid as RequestInvalid
from dagmaster.errors.requests import RequestTimedOut as RequestTimedOut
from dagmaster.errors.requests import RequestTooLarge as RequestTooLarge
from dagmaster.errors.requests import ScopeMissing as ScopeMissing
from dagmaster.errors.requests import ServerAnswerInvalid as ServerAnswerInvalid
from dagmaster.errors.requests import ServerUnavailable as ServerUnavailable
from dagmaster.errors.requests import ServiceNotFound as ServiceNotFound
from dagmaster.errors.requests import StreamLimitExceeded as StreamLimitExceeded
from dagmaster.errors.requests import TokenRejected as TokenRejected
from dagmaster.errors.requests import TooManyFailures as TooManyFailures
from dagmaster.errors.requests import WorkerExpired as WorkerExpired
from dagmaster.errors.tenants import TenantExists as TenantExists
from dagmaster.errors.tenants import TenantInvalid as TenantInvalid
from dagmaster.errors.tenants import TenantNotFound as TenantNotFound
from dagmaster.errors.tenants import TenantsNotIsolated as TenantsNotIsolated

# ── Workflows, inputs, handlers ─────────────────────────────────────────────────────────────────────────────

if TYPE_CHECKING:
    from collections.abc import Iterable


class WorkflowInvalid(ProblemsError):
    """The workflow is not valid."""

    code = "workflow_invalid"
    category = Category.INVALID
    http_status = 422


class NodesRejected(DagmasterError):
    """The nodes cannot be added to the job."""

    code = "nodes_rejected"
    category = Category.INVALID
    http_status = 422

    def __init__(self, message: str = "", nodes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.nodes = tuple(nodes)
        """The ids of the nodes that are to blame, if they are known."""


class InputsInvalid(ProblemsError):
    """The inputs do not match the workflow."""

    code = "inputs_invalid"
    category = Category.INVALID
    http_status = 422


class ExpressionInvalid(DagmasterError):
    """The expression cannot be compiled."""

    code = "expression_invalid"
    category = Category.INVALID

    def __init__(
        self, message: str, *, offset: int = 0, hint: str = "", path: tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.hint = hint
        self.path = path


class EvaluationFailed(DagmasterError):
    """The expression has no value."""

    code = "evaluation_failed"
    category = Category.INVALID

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class GraphNotFound(DagmasterError):
    """No stored workflow definition has this content hash."""

    code = "graph_not_found"
    category = Category.NOT_FOUND


# ── Jobs and commands ───────────────────────────────────────────────────────────────────────────────────────


class JobFailed(DagmasterError):
    """The job that was run has failed or was cancelled."""

    code = "job_failed"
    category = Category.CONFLICT


class JobNotFound(DagmasterError):
    """No job has this id."""

    code = "job_not_found"
    category = Category.NOT_FOUND


class NodeNotFound(DagmasterError):
    """The job has no node with this id."""

    code = "node_not_found"
    category = Category.NOT_FOUND


class UsageInvalid(DagmasterError):
    """The command line is not valid."""

    code = "usage_invalid"
    category = Category.INVALID


class SubmissionRejected(DagmasterError):
    """The job was not accepted."""

    code = "submission_rejected"
    category = Category.INVALID


class IdempotencyConflict(SubmissionRejected):
    """The idempotency key belongs to a job with other inputs or another workflow."""

    code = "idempotency_conflict"
    category = Category.CONFLICT


class CommandRejected(DagmasterError):
    """The command cannot be applied to this job."""

    code = "command_rejected"
    category = Category.CONFLICT


class CommandInvalid(CommandRejected):
    """The command is not well formed."""

    code = "command_invalid"
    category = Category.INVALID


class JobFinished(CommandRejected):
    """The command needs a job that has not finished."""

    code = "job_finished"


class JobAlreadyCancelled(JobFinished):
    """The job was cancelled before, or is being cancelled."""

    code = "job_already_cancelled"


class JobNotFinished(CommandRejected):
    """The command needs a finished job."""

    code = "job_not_finished"


class ApprovalNotPending(CommandRejected):
    """The node is not an approval that waits for an answer."""

    code = "approval_not_pending"


class ApproverNotAllowed(CommandRejected):
    """The workflow does not name this user as an approver of the node."""

    code = "approver_not_allowed"
    category = Category.FORBIDDEN


class SignalNotExpected(CommandRejected):
    """No node of the workflow waits for this signal."""

    code = "signal_not_expected"


class NodeNotRetriable(CommandRejected):
    """Only a node that failed, was cancelled or waits for its next attempt can be retried."""

    code = "node_not_retriable"


class NodeNotCancellable(CommandRejected):
    """Only a node that has not finished can be cancelled, and only once."""

    code = "node_not_cancellable"


class SecretInputsMissing(DagmasterError):
    """A resume changes inputs and does not give the secret ones again."""

    code = "secret_inputs_missing"
    category = Category.INVALID


class NothingToResume(CommandRejected):
    """The job completed; a resume must name nodes to run again, or change inputs or version."""

    code = "nothing_to_resume"


# ── Settings, database, storage ─────────────────────────────────────────────────────────────────────────────


class SettingsInvalid(DagmasterError):
    """A setting is not valid."""

    code = "settings_invalid"
    category = Category.INVALID


class DatabaseUnavailable(DagmasterError):
    """The database cannot be reached."""

    code = "database_unavailable"
    category = Category.UNAVAILABLE


class DatabaseReadOnly(DatabaseUnavailable):
    """The database accepts no changes: it is a standby, or set to read-only."""

    code = "database_read_only"


class DatabaseDiskFull(DatabaseUnavailable):
    """The disk of the database is full."""

    code = "database_disk_full"


class EmbeddedPostgresUnavailable(DagmasterError):
    """The embedded PostgreSQL is not running."""

    code = "embedded_postgres_unavailable"
    category = Category.UNAVAILABLE


class DataDirectoryUnusable(EmbeddedPostgresUnavailable):
    """The data directory cannot hold the embedded PostgreSQL."""

    code = "data_directory_unusable"


class ServicesIncompatible(DagmasterError):
    """Services are alive that could not use the schema any more."""

    code = "services_incompatible"
    category = Category.CONFLICT


class SchemaVersionMismatch(DagmasterError):
    """The schema of the database does not match this version of dagmaster."""

    code = "schema_version_mismatch"
    category = Category.UNAVAILABLE


class OwnershipLost(DagmasterError):
    """The lease of this process expired; others may have taken over its jobs or tasks."""

    code = "ownership_lost"
    category = Category.CONFLICT


class StatementFailed(DagmasterError):
    """The database refused a statement: a mistake in dagmaster, or a row that breaks a constraint."""

    code = "statement_failed"
    category = Category.INTERNAL


class UnexpectedFailure(DagmasterError):
    """Something failed that dagmaster does not expect to fail: a mistake in dagmaster."""

    code = "unexpected_failure"
    category = Category.INTERNAL


class InvalidTransition(DagmasterError):
    """The transition table does not allow this step."""

    code = "invalid_transition"
    category = Category.INTERNAL


class BlobNotFound(DagmasterError):
    """No blob has this name."""

    code = "blob_not_found"
    category = Category.NOT_FOUND


class BlobNameInvalid(PermanentError):
    """The text is not the name of a blob that may be used."""

    code = "blob_name_invalid"
    category = Category.INVALID

    def __init__(self, message: str = "", *, kind: str = "invalid_input", **details: Any) -> None:
        super().__init__(message, kind=kind, **details)


class BlobsUnavailable(DagmasterError):
    """The blob storage cannot be used."""

    code = "blobs_unavailable"
    category = Category.UNAVAILABLE


class CatalogUnavailable(DagmasterError):
    """The STAC catalog cannot be reached."""

    code = "catalog_unavailable"
    category = Category.UNAVAILABLE


class CollectionNotFound(DagmasterError):
    """The STAC catalog has no collection with this id."""

    code = "collection_not_found"
    category = Category.NOT_FOUND


class ItemNotFound(DagmasterError):
    """The collection has no STAC item with this id."""

    code = "item_not_found"
    category = Category.NOT_FOUND


class TablesUnavailable(DagmasterError):
    """The table storage cannot be reached."""

    code = "tables_unavailable"
    category = Category.UNAVAILABLE


def error_types() -> list[type[DagmasterError]]:
    """Return every error class with its own code, in the order of this module."""
    classes = [
        value for value in globals().values() if isinstance(value, type) and issubclass(value, DagmasterError)
    ]
    return [cls for cls in classes if "code" in vars(cls)]
