"""Every error has a stable code and a category, and one table says how interfaces answer with it."""

from __future__ import annotations

import inspect
import json
import re

import click
import pytest
from click.testing import CliRunner

from dagmaster import errors
from dagmaster.cli.errors import CommandError, command_errors
from dagmaster.cli.main import BAD_INPUT, UNAVAILABLE, LazyGroup, main
from dagmaster.errors import (
    OUTCOMES,
    ApproverNotAllowed,
    BlobNameInvalid,
    Category,
    DagmasterError,
    DatabaseUnavailable,
    InputsInvalid,
    JobNotFound,
    PermanentError,
    Problem,
    SchemaVersionMismatch,
    StatementFailed,
    error_types,
)
from dagmaster.errors.base import ProblemsError
from dagmaster.sdk.command_line import json_option


def test_every_error_class_has_a_unique_code():
    classes = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, DagmasterError) and value is not ProblemsError
    ]
    assert [cls for cls in classes if "code" not in vars(cls)] == []
    codes = [cls.code for cls in error_types()]
    assert len(codes) == len(set(codes)) == len(classes)
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(_[a-z]+)+", code)] == []


def test_a_code_is_the_name_of_its_class():
    for cls in error_types():
        assert cls.code == re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def test_the_table_has_every_category():
    assert set(OUTCOMES) == set(Category)


@pytest.mark.parametrize(
    ("cls", "exit_code", "http_status"),
    [
        (JobNotFound, 2, 404),
        (ApproverNotAllowed, 2, 403),
        (BlobNameInvalid, 2, 400),
        (DatabaseUnavailable, 3, 503),
        (SchemaVersionMismatch, 3, 503),
        (StatementFailed, 70, 500),
    ],
)
def test_the_category_decides_the_exit_code_and_the_http_status(cls, exit_code, http_status):
    assert OUTCOMES[cls.category] == (exit_code, http_status)


def test_an_error_without_a_message_has_the_sentence_of_its_class():
    assert JobNotFound().to_dict() == {
        "code": "job_not_found",
        "category": "not_found",
        "message": "No job has this id.",
    }


def test_a_subclass_that_a_handler_defines_inherits_code_and_category():
    class NoCloudFreeScene(PermanentError):
        """All scenes are cloudy."""

    assert NoCloudFreeScene().to_dict() == {
        "code": "permanent_error",
        "category": "invalid",
        "message": "All scenes are cloudy.",
    }


def test_problems_are_listed_with_their_positions():
    error = InputsInvalid([Problem(message="missing input 'name'", path="name"), Problem(message="second")])
    document = error.to_dict()
    assert document["message"] == "The inputs do not match the workflow: 2 problems"
    assert [problem["message"] for problem in document["problems"]] == ["missing input 'name'", "second"]
    assert document["problems"][0]["path"] == "name"


# ── What commands print ──


@click.group(cls=LazyGroup)
def group() -> None:
    """Commands that fail."""


@group.command()
@json_option
def fail(*, as_json: bool) -> None:
    """Fail with an error of dagmaster."""
    raise JobNotFound(f"there is no job 7 ({as_json})")


@group.command()
@json_option
def misuse(*, as_json: bool) -> None:
    """Fail as click does."""
    raise click.UsageError(f"two options exclude each other ({as_json})")


def invoke(*arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(group, arguments)
    assert result.exit_code != 0
    return result.stdout, result.stderr


def test_an_error_is_a_sentence_on_the_error_stream():
    output, error_output = invoke("fail")
    assert (output, error_output.splitlines()[0]) == ("", "Error: there is no job 7 (False)")
    assert "dagmaster jobs list" in error_output, "what to type about it"


def test_with_json_an_error_is_one_document_on_the_output():
    output, error_output = invoke("fail", "--json")
    assert json.loads(output) == {"error": JobNotFound("there is no job 7 (True)").to_dict()}
    assert error_output == ""


def test_with_json_wrong_usage_is_also_a_document():
    output, error_output = invoke("misuse", "--json")
    assert json.loads(output)["error"] == {
        "code": "usage_invalid",
        "category": "invalid",
        "message": "two options exclude each other (True)",
    }
    assert error_output == ""
    assert "Error: two options" in invoke("misuse")[1]


def test_main_exits_with_the_code_of_the_category(monkeypatch, capsys):
    def fail_with(error: DagmasterError) -> int:
        def invoke_failing(_self: LazyGroup, _ctx: click.Context) -> None:
            with command_errors():
                raise error

        monkeypatch.setattr(LazyGroup, "invoke", invoke_failing)
        with pytest.raises(SystemExit) as ended:
            main(["jobs", "list"])
        assert str(error) in capsys.readouterr().err
        return int(str(ended.value.code))

    assert fail_with(JobNotFound("gone")) == 2
    assert fail_with(DatabaseUnavailable("down")) == 3
    assert fail_with(StatementFailed("broken")) == 70


@group.command()
@json_option
def crash(*, as_json: bool) -> None:
    """Fail as no code expects."""
    raise ZeroDivisionError(f"hunter2-canary {as_json}")


def test_an_unexpected_exception_is_an_internal_error_and_not_a_failed_job(monkeypatch, capsys):
    monkeypatch.setattr("dagmaster.cli.main.cli", group)
    with pytest.raises(SystemExit) as ended:
        main(["crash"])
    output = capsys.readouterr()
    assert ended.value.code == OUTCOMES[Category.INTERNAL].exit_code == 70
    assert output.out == ""
    assert "dagmaster failed unexpectedly (ZeroDivisionError)" in output.err
    assert "DAGMASTER_DEBUG=1 prints the trace" in output.err
    assert "Traceback" not in output.err
    assert "hunter2-canary" not in output.err


def test_with_json_an_unexpected_exception_is_a_document(monkeypatch, capsys):
    monkeypatch.setattr("dagmaster.cli.main.cli", group)
    with pytest.raises(SystemExit) as ended:
        main(["crash", "--json"])
    output = capsys.readouterr()
    error = json.loads(output.out)["error"]
    assert (ended.value.code, error["code"], error["category"]) == (70, "unexpected_failure", "internal")
    assert output.err == ""


def test_the_trace_of_an_unexpected_exception_is_printed_on_request(monkeypatch, capsys):
    monkeypatch.setattr("dagmaster.cli.main.cli", group)
    monkeypatch.setenv("DAGMASTER_DEBUG", "1")
    with pytest.raises(SystemExit):
        main(["crash"])
    assert "ZeroDivisionError: hunter2-canary False" in capsys.readouterr().err


def test_the_exit_codes_of_commands_stand_in_the_table():
    assert OUTCOMES[Category.INVALID].exit_code == BAD_INPUT
    assert OUTCOMES[Category.UNAVAILABLE].exit_code == UNAVAILABLE


def test_command_errors_lets_other_exceptions_pass():
    with pytest.raises(ZeroDivisionError), command_errors():
        raise ZeroDivisionError
    with pytest.raises(CommandError), command_errors():
        raise JobNotFound
