"""Submit jobs, one by one or in batches; plan what a submit would do."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from fastapi import Depends, Header
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.application.submission import MAX_BATCH, JobRequest, submit_jobs
from dagmaster.application.submission_plan import plan_submission
from dagmaster.errors import SubmissionRejected
from dagmaster.http.job_options import OptionsBody
from dagmaster.http.parameters import InputTexts
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import App, Caller, Origin, Services
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_options import MAX_CORRELATION_ID, MAX_KEY, MAX_LABEL

routes = Routes("jobs")
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY,
        description="The same key and body: the same job, however often it is sent. Instead of the field of"
        " the body.",
        examples=["order-4711"],
    ),
]
TraceParent = Annotated[
    str | None, Header(max_length=200, description="W3C trace context, which the tasks continue.")
]

CorrelationId = Annotated[
    str | None,
    Header(
        alias="X-Correlation-ID",
        min_length=1,
        max_length=MAX_CORRELATION_ID,
        description="The correlation id of jobs whose body has none. The answer repeats it. It is part of the"
        " request: with an idempotency key, send the same one again.",
    ),
]
_OTHER_NAMES: Final = {"inputs": "input_params", "submitter_label": "submitted_by"}
"""The names that other systems have for fields of a job."""


class JobBody(OptionsBody):
    """A job, without its workflow."""

    inputs: dict[str, Any] = Field(default_factory=dict, examples=[{"count": 100}])
    input_params: dict[str, Any] | None = Field(default=None, description="The same as `inputs`: send one.")
    input_texts: InputTexts = Field(default_factory=dict)
    submitted_by: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_LABEL,
        description="The same as `submitter_label`: send one. The submitter is the caller.",
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name, other in _OTHER_NAMES.items():
            if getattr(self, other) is not None and name in self.model_fields_set:
                raise ValueError(f"{name} and {other} are the same field: send one of them")
        return self

    def options(self, correlation_id: str | None = None) -> dict[str, Any]:
        """Return the fields of a request. `correlation_id`: of the header, if the body has none."""
        fields: dict[str, Any] = self.model_dump(exclude={*_OTHER_NAMES.values()})
        for name, other in _OTHER_NAMES.items():
            value = getattr(self, other)
            fields[name] = fields[name] if value is None else value
        fields["correlation_id"] = self.correlation_id or correlation_id
        return fields


class SubmitBody(JobBody):
    """A job of a published workflow."""

    workflow_id: str = Field(min_length=1, max_length=64, examples=["fan_out"])
    version: int | None = Field(default=None, ge=1, le=2**31 - 1, description="Default: the active version.")

    def to_request(
        self,
        submitted_by: str,
        header_key: str | None = None,
        trace_parent: str | None = None,
        correlation_id: str | None = None,
    ) -> JobRequest:
        options = self.options(correlation_id)
        options["idempotency_key"] = one_key(self.idempotency_key, header_key)
        return JobRequest(**options, submitted_by=submitted_by, trace_parent=trace_parent)


class BatchBody(Body):
    """Up to 100 jobs, each with its own outcome."""

    jobs: list[SubmitBody] = Field(min_length=1, max_length=MAX_BATCH)


def one_key(field_key: str | None, header_key: str | None) -> str | None:
    """Return the idempotency key of a body or its header; raise `SubmissionRejected` if they differ."""
    if header_key is not None and field_key is not None and header_key != field_key:
        raise SubmissionRejected("the header Idempotency-Key and the field idempotency_key differ")
    return field_key or header_key


async def reject_key_of_batch(request: Request) -> None:
    """Raise `SubmissionRejected` for a key of several jobs: ignored, it would promise what does not hold."""
    if "idempotency-key" in request.headers:
        raise SubmissionRejected(
            "several jobs cannot share one Idempotency-Key: each of them has the field idempotency_key"
        )


@routes.post("/jobs", Scope.SUBMIT, "SubmitResult", 202, headers=["Location"], reach=Reach.OPEN)
async def submit(
    services: Services,
    origin: Origin,
    caller: Caller,
    body: SubmitBody,
    idempotency_key: IdempotencyKey = None,
    traceparent: TraceParent = None,
    correlation_id: CorrelationId = None,
) -> JSONResponse:
    """Submit a job. The same idempotency key and body: the same job; another body: 409."""
    result = await services.submissions.submit(
        body.to_request(origin.actor, idempotency_key, traceparent, correlation_id), origin, caller
    )
    return JSONResponse(result.to_dict(), 202, headers={"Location": f"/api/v1/jobs/{result.job_id}"})


@routes.post(
    "/jobs/batch",
    Scope.SUBMIT,
    "[SubmitResult]",
    202,
    dependencies=[Depends(reject_key_of_batch)],
    reach=Reach.OPEN,
)
async def submit_batch(
    app: App,
    caller: Caller,
    body: BatchBody,
    traceparent: TraceParent = None,
    correlation_id: CorrelationId = None,
) -> JSONResponse:
    """Submit up to 100 jobs. An invalid one does not stop the others: each has its own outcome."""
    results = await submit_jobs(
        app, [job.to_request(caller.actor, None, traceparent, correlation_id) for job in body.jobs]
    )
    return JSONResponse([result.to_dict() for result in results], 202)


@routes.post("/plan", Scope.SUBMIT, "SubmissionPlanView", reach=Reach.OPEN)
async def plan(app: App, caller: Caller, body: SubmitBody) -> JSONResponse:
    """Show what this submit would do: what starts, what is decided, which queues are served.

    Nothing is stored.
    """
    return JSONResponse((await plan_submission(app, body.to_request(caller.actor))).to_dict())
