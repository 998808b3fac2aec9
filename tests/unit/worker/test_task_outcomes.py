"""What a handler returned or raised, as an outcome."""

from __future__ import annotations

import itertools
import json
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field

from dagmaster.errors import PermanentError
from dagmaster.ports.handler_reports import HandlerResult, Progress
from dagmaster.ports.task_messages import Failed, Outcome, Succeeded
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler, spec_of
from dagmaster.worker import task_outcomes
from dagmaster.worker.task_outcomes import failure_of, outcome_of, readable_progress


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
        (
            HandlerResult(success=False),
            Failed({"kind": "error", "message": "the handler reported a failure"}),
        ),
        (Other(areaKm2=1), Succeeded({"areaKm2": 1})),
    ],
)
def test_a_returned_value_becomes_an_outcome(value, outcome):
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
    assert "the output of typed is not a Area: `areaKm2`" in str(error)
    assert "s3cret" not in str(error)


@pytest.mark.parametrize("value", [[1], 3, "text", Progress(1)])
def test_an_output_is_a_dict(value):
    assert f"a value of type {type(value).__name__}: an output is a dict" in str(refused(value))


def test_a_model_that_is_not_finite_is_refused():
    assert refused(Area(areaKm2=float("inf")), TYPED).details == {"path": "areaKm2"}


def test_metrics_are_also_json():
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


class Unspeakable:
    """Says nothing about itself."""

    def __repr__(self) -> str:
        raise SystemExit("no words")


class Sly(str):
    """Text that fails when it is used."""

    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError

    encode = replace = __getitem__ = __format__ = __bool__ = __str__ = __len__  # type: ignore[assignment]


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class SlyError(Exception, metaclass=Nameless):
    def __str__(self) -> str:
        return Sly("sly")


class Uninitialised(PermanentError):
    def __init__(self) -> None:
        Exception.__init__(self, "no super")


class Guarded(PermanentError):
    @property
    def details(self) -> dict[str, Any]:
        raise RuntimeError

    @details.setter
    def details(self, value: Any) -> None: ...


def with_details(details: Any) -> PermanentError:
    error = PermanentError("x")
    error.details = details
    return error


def test_a_detail_whose_repr_fails_is_called_by_its_type():
    error = PermanentError("x", a=Unspeakable(), b=[Unspeakable()], c=2)
    assert failure_of(error) == Failed(
        {"a": "Unspeakable", "b": ["Unspeakable"], "c": 2, "kind": "permanent", "message": "x"},
        permanent=True,
    )


def test_a_kind_whose_text_fails_is_called_by_its_type():
    kind: Any = Unspeakable()
    assert failure_of(PermanentError("x", kind=kind)) == Failed(
        {"kind": "Unspeakable", "message": "x"}, permanent=True
    )


def test_an_exit_whose_repr_fails_is_called_by_its_type():
    error = error_of(SystemExit(Unspeakable()))
    assert error == {
        "kind": "exit",
        "message": "the handler tried to end the process: SystemExit",
        "type": "SystemExit",
    }


def test_a_text_that_fails_when_it_is_used_is_read_as_plain_text():
    error = error_of(SlyError())
    assert (error["kind"], error["message"], error["type"]) == ("error", "sly", "SlyError")
    assert type(error["message"]) is str


def test_the_key_of_a_detail_becomes_text():
    error = error_of(with_details({1: "one", Unspeakable(): "none", Sly("sly"): Sly("text")}))
    assert error == {"1": "one", "Unspeakable": "none", "sly": "text", "kind": "permanent", "message": "x"}


@pytest.mark.parametrize("details", [None, 3, [("a", 1)]])
def test_details_that_are_no_dict_are_left_out(details):
    assert failure_of(with_details(details)) == Failed({"kind": "permanent", "message": "x"}, permanent=True)


@pytest.mark.parametrize(("error", "message"), [(Uninitialised(), "no super"), (Guarded("x"), "x")])
def test_a_permanent_error_without_details_is_permanent_all_the_same(error, message):
    assert failure_of(error) == Failed({"kind": "permanent", "message": message}, permanent=True)


def test_a_traceback_that_cannot_be_written_still_has_its_frames(monkeypatch):
    def broken(*_: Any, **__: Any) -> list[str]:
        raise RuntimeError

    monkeypatch.setattr(traceback, "format_exception", broken)
    with pytest.raises(ValueError, match="x") as caught:
        raise ValueError("x")
    error = error_of(caught.value)
    assert error["message"] == "x"
    assert 'raise ValueError("x")' in error["traceback"]


def test_what_cannot_be_described_at_all_is_a_failure_nevertheless(monkeypatch):
    def broken(*_: Any) -> str:
        raise SystemExit

    monkeypatch.setattr(task_outcomes, "_message_of", broken)
    error = error_of(ValueError("x"))
    assert (error["kind"], error["type"]) == ("error", "ValueError")


def test_a_long_detail_is_truncated_with_a_mark():
    error = error_of(PermanentError("x", big="y" * 20_000_000, kind="k" * 1_000_000))
    assert error["big"] == "y" * 1_999 + "…"
    assert len(error["kind"]) == 200


def endless() -> dict[str, Any]:
    itself: dict[str, Any] = {}
    itself["itself"] = [itself, itself]
    return itself


class Counting(Mapping[str, int]):
    """A dict without an end."""

    def __getitem__(self, key: str) -> int:
        return int(key)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return map(str, itertools.count())


@pytest.mark.parametrize(
    "value",
    [
        list(range(100_000)),
        {str(number): number for number in range(100_000)},
        {"k" * 1_000_000: 1},
        ['é\n"\0\udcff' * 100] * 1_000,
        [1.5e300, 2**1000, None, True, float("nan"), 2**5000] * 1_000,
        [[[]] * 1_000] * 1_000,
        endless(),
        Counting(),
        bytes(100_000),
    ],
    ids=["list", "dict", "key", "texts", "numbers", "lists", "itself", "endless", "bytes"],
)
def test_details_have_at_most_sixteen_kib_of_json_and_leave_space_for_the_next(value):
    error = error_of(PermanentError("x", first=value, second=value, path="a.b"))
    details = {key: error[key] for key in error if key not in ("kind", "message")}
    assert len(json.dumps(details, allow_nan=False)) <= 16 * 1024
    assert "…" in json.dumps(details, ensure_ascii=False)
    assert details["path"] == "a.b"


def test_very_many_details_are_cut():
    error = error_of(with_details({f"key{number}": number for number in range(10_000)}))
    assert len(json.dumps(error)) <= 17 * 1024
    assert (error["key0"], error["…"], error["message"]) == (0, "…", "x")


def test_deep_details_are_cut():
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]
    text = json.dumps(error_of(PermanentError("x", deep=deep))["deep"], ensure_ascii=False)
    assert text == "[" * 15 + '"…"' + "]" * 15


def test_a_dict_that_fails_half_way_is_kept_as_far_as_it_went():
    class Half(Counting):
        def __getitem__(self, key: str) -> int:
            return 10 // (2 - int(key))

    assert error_of(PermanentError("x", half=Half()))["half"] == {"0": 5, "1": 10, "…": "…"}


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


def test_numbers_of_other_libraries_are_also_progress():
    class Third:
        def __float__(self) -> float:
            return 0.5

    assert readable_progress(Progress(Third(), 2), HandlerContext()) == Progress(0.5, 2)  # type: ignore[arg-type]
    assert readable_progress(Progress(10**400), HandlerContext()) is None


# ── what it was about ───────────────────────────────────────────────────────────────────────────────────────────────

SCENE = "file:///data/x.tif"


def about(message: str, place: str = SCENE, kind: str = "invalid_input") -> str:
    text: str = failure_of(PermanentError(message, kind=kind), place).error["message"]
    return text


def test_bad_input_ends_with_the_file_that_the_task_is_about():
    assert about("it has no bands") == f"it has no bands [{SCENE}]"


@pytest.mark.parametrize(
    "message",
    [f"{SCENE}: it has no bands", "/data/x.tif has no bands", "n08: it has no bands [s3://b/y.tif]"],
)
def test_a_message_that_names_a_place_is_left_as_it_is(message):
    assert about(message) == message


def test_a_failure_of_another_kind_names_no_file():
    assert about("no", kind="permanent") == "no"
    assert failure_of(ValueError("no"), SCENE).error["message"] == "no"


def test_what_a_task_is_about_shows_no_key():
    message = about("no", "https://ada:s3cret@host/x.tif?sig=s3cret")
    assert message == "no [https://***@host/x.tif?***]"


def test_a_long_message_still_names_its_file():
    message = about("x" * 10_000)
    assert message.endswith(f" [{SCENE}]")
    assert len(message) <= task_outcomes.MAX_MESSAGE
    assert about("no", "file:///" + "x" * 10_000 + "/end.tif").endswith("x/end.tif]")


@pytest.mark.parametrize("place", [7, "\udc80", object()])
def test_anything_may_stand_in_about(place):
    json.dumps(about("no", place)).encode()
