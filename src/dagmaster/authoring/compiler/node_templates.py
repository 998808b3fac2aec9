"""Compile the templates of nodes, and record every path that they use.

Whether the paths exist is checked in `reference_checks`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from dagmaster.authoring.model_reader import UNREADABLE
from dagmaster.authoring.source_document import entries
from dagmaster.authoring.validation_messages import describe_actual
from dagmaster.engine.approvals_and_waits import MAX_WAIT_SECONDS
from dagmaster.engine.expressions.conditions import compile_condition
from dagmaster.engine.expressions.paths import DECISION, PARAMS
from dagmaster.engine.expressions.secret_parts import NO_SECRET_INPUTS, SecretInputs
from dagmaster.engine.expressions.templates import Template, compile_template_all
from dagmaster.errors import ExpressionInvalid
from dagmaster.errors.source_map import truncate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.engine.expressions.expression import Expression, PathUse
    from dagmaster.errors import Problem
    from dagmaster.json_types import JsonValue

_PLAIN_FIELD: Final = re.compile(r"\{\{[\w\s.\[\]'\"]+(\|\s*default\b.*)?\}\}", re.DOTALL)

_WITH_SECRET_INPUTS: Final = frozenset({"params", "inputs"})
"""The values in which a secret input may be used: the params of tasks, and the inputs of child jobs."""


class Use(NamedTuple):
    """A path used by an expression: its location, the node that uses it, and its fan-out nesting."""

    use: PathUse
    path: Path
    node_id: str | None
    nesting: int


class TemplateCompiler:
    """Compile the values of one document. The caller sets the node and the nesting they belong to."""

    def __init__(self, document: Document, secret_inputs: SecretInputs = NO_SECRET_INPUTS) -> None:
        self.document = document
        self._secret_inputs = secret_inputs
        self._allowed_secrets = replace(secret_inputs, is_allowed=True)
        self.problems: list[Problem] = []
        self.uses: list[Use] = []
        self.node_id: str | None = None
        self.nesting = 0

    def value(self, key: str, written: Any, path: Path) -> Template | None:
        match key:
            case "condition_field":
                return self.condition_field(written, path)
            case "source":
                return self.source(written, path)
            case "seconds":
                return self.seconds(written, path)
            case "until":
                return self.until(written, path)
            case _:
                secrets = self._allowed_secrets if key in _WITH_SECRET_INPUTS else self._secret_inputs
                return self.template(written, path, PARAMS if key == "params" else DECISION, secrets)

    def template(
        self, value: JsonValue, path: Path, roots: frozenset[str], secret_inputs: SecretInputs | None = None
    ) -> Template | None:
        secret_inputs = secret_inputs or self._secret_inputs
        if self.nesting:
            roots |= {"item", "index", "outer"} if self.nesting > 1 else {"item", "index"}
        # A stored definition has sorted keys: a file compiles to exactly the same.
        template, mistakes = compile_template_all(sort_keys(value), roots, secret_inputs)
        for mistake in mistakes:
            self._mistake(mistake, (*path, *mistake.path))
        if template is not None:
            self._note(template, path)
        elif isinstance(value, dict | list):
            # The correct strings are recorded all the same.
            for inside, text in _strings(value):
                whole, _ = compile_template_all(text, roots, secret_inputs)
                if whole is not None:
                    self._note(whole, (*path, *inside))
        return template

    def _note(self, template: Template, path: Path, *, shift: int = 0) -> None:
        for inside, use in template.uses:
            placed = replace(use, offset=use.offset + shift) if shift else use
            self.uses.append(Use(placed, (*path, *inside), self.node_id, self.nesting))

    def condition_field(self, text: str, path: Path) -> Template | None:
        """Compile what `value` is. Its braces may be left out."""
        if "{{" in text:
            return self.template(text, path, DECISION)
        before = "{{ "
        field, mistakes = compile_template_all(before + text + " }}", DECISION, self._secret_inputs)
        for mistake in mistakes:
            offset = max(mistake.offset - len(before), 0)
            self._mistake(ExpressionInvalid(str(mistake), offset=offset, hint=mistake.hint), path)
        if field is not None:
            self._note(field, path, shift=-len(before))
        return field

    def condition(self, text: str, path: Path, roots: frozenset[str], name: str) -> Expression | None:
        try:
            condition = compile_condition(
                text, roots=roots, field_name=name, secret_inputs=self._secret_inputs
            )
        except ExpressionInvalid as mistake:
            self._mistake(mistake, path)
            return None
        if "value" not in roots and any(use.keys[0] == "value" for use in condition.uses):
            hint = "add condition_field: '{{ … }}' to the conditional, or name the value here"
            self.problem("the condition has nothing to compare with", path, hint=hint)
            return None
        for use in condition.uses:
            if use.keys[0] != "value":
                # Offsets count in what was compiled, which has `value` before it and numbers for sizes.
                offset = max(text.find(str(use.keys[0])), 0)
                self.uses.append(Use(replace(use, offset=offset), path, self.node_id, self.nesting))
        return condition

    def source(self, value: JsonValue, path: Path) -> Template | None:
        if value is None:
            return None
        if not isinstance(value, str | list):
            self.problem(
                f"source is a list, or an expression that evaluates to a list{describe_actual(value)}", path
            )
            return None
        if isinstance(value, str) and "{{" not in value:
            hint = f"write '{{{{ {truncate(value)} }}}}'"
            self.problem("source is a list, or an expression that evaluates to a list", path, hint=hint)
            return None
        return self.template(value, path, DECISION)

    def seconds(self, value: Any, path: Path) -> Template | None:
        """Compile how long a wait takes."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not 0 <= value <= MAX_WAIT_SECONDS:
            self.problem(f"seconds is a number from 0 to {MAX_WAIT_SECONDS:,}", path)
            return None
        if not is_number and not (isinstance(value, str) and "{{" in value):
            hint = "write the number of seconds" if isinstance(value, str) else ""
            self.problem(f"seconds is a number or an expression{describe_actual(value)}", path, hint=hint)
            return None
        return self.template(value, path, DECISION)

    def until(self, value: str, path: Path) -> Template | None:
        if "{{" not in value and not _is_datetime(value):
            hint = "for example: 2026-12-31T18:00:00Z"
            self.problem(
                f"until is a date-time with its zone, or an expression{describe_actual(value)}",
                path,
                hint=hint,
            )
            return None
        return self.template(value, path, DECISION)

    def _mistake(self, mistake: ExpressionInvalid, path: Path) -> None:
        hint = next(
            (hint for root, hint in _SCOPE_HINTS.items() if f"there is no `{root}` here" == str(mistake)), ""
        )
        problem = self.document.problem(str(mistake), path, hint=hint or mistake.hint, offset=mistake.offset)
        self.problems.append(problem)

    def problem(self, message: str, path: Path, *, at_key: bool = False, hint: str = "") -> None:
        self.problems.append(self.document.problem(message, path, at_key=at_key, hint=hint))


class CheckedValues:
    """The values of one node, for its reader: what cannot be compiled is reported, and left out."""

    def __init__(self, compiler: TemplateCompiler, path: Path, nesting: int = 0) -> None:
        self._compiler = compiler
        self._path = path
        self._nesting = nesting
        self._field: Template | None = None
        self._roots = DECISION

    def template(self, key: str, written: Any) -> Template:
        self._compiler.nesting = self._nesting
        compiled = self._compiler.value(key, written, (*self._path, key))
        self._compiler.nesting = 0
        if key == "condition_field":
            self._field, self._roots = compiled, DECISION | {"value"}
        # Without it the document has an error, and makes no graph.
        return cast("Template", compiled)

    def condition(self, index: int, written: str) -> Expression | None:
        if written == UNREADABLE:
            return None
        path = (*self._path, "branches", index, "condition")
        return self._compiler.condition(written, path, self._roots, last_key(self._field))

    def of_child(self) -> CheckedValues:
        return CheckedValues(self._compiler, (*self._path, "task"), self._nesting + 1)


_SCOPE_HINTS: Final = {
    "secrets": "secrets are only for the params of tasks: they are filled in on the worker",
    "item": "item is the item of a fan-out's task: only tasks of fan-outs have one",
    "index": "index is the index of an item in a fan-out's task: only tasks of fan-outs have one",
    "outer": "outer is for a fan-out inside a fan-out: this one is not",
    "upstream": "the result of a job has no upstream: name the node, nodes.NAME.output",
    "value": "value is for the conditions of branches",
}


def sort_keys(value: Any) -> Any:
    if isinstance(value, dict):
        inside = ((key, value[key]) for key in sorted(value))
        return {key: sort_keys(item) if isinstance(item, dict | list) else item for key, item in inside}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def _is_datetime(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _strings(value: JsonValue, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    for key, item in entries(value):
        yield from _strings(item, (*path, key))


def last_key(field: Template | None) -> str:
    """Return the name of the field that a conditional looks at, when it is a plain path."""
    if field is None or len(field.uses) != 1 or not _PLAIN_FIELD.fullmatch(field.source.strip()):
        return ""
    return str(field.uses[0][1].keys[-1])
