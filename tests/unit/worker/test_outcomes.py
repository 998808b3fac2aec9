"""What a handler returned or raised, as an outcome."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field

from dagmaster.authoring.handlers import handler, spec_of
from dagmaster.errors import PermanentError
from dagmaster.ports.handler import HandlerResult, Progress
from dagmaster.ports.task import Failed, Outcome, Succeeded
from dagmaster.worker.outcomes import failure_of, outcome_of, readable_progress


class Area(BaseModel):
    area: float = Field(alias="areaKm2")
    at: datetime | None = None


class Other(BaseModel):
    areaKm2: int  # noqa: N815 - a key of another program


def untyped(): ...


def typed(): ...


typed.__annotations__["return"] = Area
UNTYPED, TYPED = spec_of(handler("untyped")(untyped)), spec_of(handler("typed")(typed))


def refused(value: Any, spec: Any = UNTYPED) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        outcome_of(value, spec)
    assert caught.value.kind == "invalid_output"
    return caught.value


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (None, Succeeded({})),
        ({"a": 1}, Succeeded({"a": 1})),
        (HandlerResult(success=True), Succeeded({})),
        (HandlerResult(success=True, output={"a": 1}, metrics={"rows": 2}), Succeeded({"a": 1}, {"rows": 2})),
        (HandlerResult(success=False), Failed({"kind": "error", "message": "the handler reported a failure"})),
        (Other(areaKm2=1), Succeeded({"areaKm2": 1})),
    ],
)
def test_a_value_gives_an_outcome(value, outcome):
    assert outcome_of(value, UNTYPED) == outcome


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        Area(areaKm2=2, at=NOON),
        {"areaKm2": "2", "at": NOON},
        HandlerResult(success=True, output={"areaKm2": 2, "at": "2026-01-01T12:00:00Z"}),
    ],
)
def test_a_promised_output_is_checked_and_written_as_json(value):
    assert outcome_of(value, TYPED) == Succeeded({"areaKm2": 2.0, "at": "2026-01-01T12:00:00Z"})


def test_another_model_is_checked_against_the_promised_one():
    assert outcome_of(Other(areaKm2=3), TYPED) == Succeeded({"areaKm2": 3.0, "at": None})


@pytest.mark.parametrize("value", [{}, None, {"areaKm2": "s3cret"}])
def test_a_broken_promise_is_refused_with_its_place(value):
    error = refused(value, TYPED)
    assert error.details == {"path": "areaKm2"}
    assert "the output is not a Area: `areaKm2`" in str(error)
    assert "s3cret" not in str(error)


@pytest.mark.parametrize("value", [[1], 3, "text", Progress(1)])
def test_an_output_is_a_dict(value):
    assert f"a value of type {type(value).__name__}: an output is a dict" in str(refused(value))


def test_a_model_that_is_not_finite_is_refused():
    assert refused(Area(areaKm2=float("inf")), TYPED).details == {"path": "areaKm2"}


def test_metrics_are_json_too():
    assert "the metrics" in str(refused(HandlerResult(success=True, metrics={"a": {1}})))


def test_a_coroutine_that_was_returned_is_explained():
    async def forgotten() -> None: ...

    assert "has to be an `async def`" in str(refused(forgotten()))


def error_of(error: BaseException) -> dict[str, Any]:
    outcome: Outcome = failure_of(error)
    assert isinstance(outcome, Failed)
    return outcome.error


def test_an_exception_without_text_is_called_by_its_type():
    assert error_of(ValueError())["message"] == "ValueError"


def test_an_exception_whose_text_fails_is_called_by_its_type():
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_of(Broken())["message"] == "Broken"


def test_a_message_that_json_cannot_say_is_made_one_that_it_can():
    assert error_of(OSError("no file \udcff\0"))["message"] == "no file \\udcff\\x00"


def test_long_messages_and_tracebacks_are_cut():
    def deeper(level: int) -> None:
        if level:
            deeper(level - 1)
        raise ValueError("x" * 10_000)

    with pytest.raises(ValueError, match="x") as caught:
        deeper(50)
    error = error_of(caught.value)
    assert len(error["message"]) == 2_000
    assert len(error["traceback"].encode()) <= 4_096
    assert error["traceback"].endswith("xxx")


def test_groups_of_exceptions_say_what_is_in_them():
    group = BaseExceptionGroup("two", [ValueError("one"), SystemExit(2)])
    error = error_of(group)
    assert (error["kind"], error["type"]) == ("error", "BaseExceptionGroup")
    assert "ValueError: one" in error["traceback"]


def test_numbers_of_other_libraries_are_progress_too():
    class Third:
        def __float__(self) -> float:
            return 0.5

    assert readable_progress(Progress(Third(), 2)) == Progress(0.5, 2)  # type: ignore[arg-type]
    assert readable_progress(Progress(10**400)) is None
