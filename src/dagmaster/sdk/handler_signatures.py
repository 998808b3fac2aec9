"""Read the signature of a handler: which parameter receives what, and the declared types.

It knows functions and pydantic, not handler names, queues or registries.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core.core_schema import ErrorType

from dagmaster.errors import HandlerInvalid, PermanentError
from dagmaster.errors.source_map import format_path
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.json_forms import short_repr
from dagmaster.sdk.type_hints import (
    Unresolved,
    alternatives,
    is_model,
    output_type,
    resolve_annotations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

MAX_FIELDS_SHOWN = 20
CONTEXT_NAMES = ("ctx", "context")
# Errors of the types themselves; not of the author's functions, nor errors that the time decides.
_CERTAIN = frozenset(get_args(ErrorType)) - {
    "value_error",
    "assertion_error",
    "date_past",
    "date_future",
    "datetime_past",
    "datetime_future",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Which parameter of a function receives what. Without a model nothing is validated."""

    contexts: tuple[str, ...] = ()
    # The parameter that receives all params as one value: the model, or the dict without a model.
    whole: str | None = None
    # Parameters by name, with the model field that holds their value.
    named: tuple[tuple[str, str], ...] = ()
    takes_rest: bool = False
    checkpoint: str | None = None
    params_model: type[BaseModel] | None = None
    output_model: type[BaseModel] | None = None
    output_keys: frozenset[str] | None = None
    # Params whose default the operator may set, with the setting.
    operator_params: tuple[tuple[str, str], ...] = ()

    def arguments(self, context: HandlerContext) -> dict[str, Any]:
        """Return keyword arguments for a call; raise PermanentError `invalid_params` if they do not fit."""
        arguments: dict[str, Any] = {}
        if self.params_model is not None:
            params = self._with_operator_defaults(context) if self.operator_params else context.params
            self._check(self.params_model, params, arguments)
        elif self.whole is not None:
            arguments[self.whole] = context.params
        if self.checkpoint is not None:
            saved = context.last_checkpoint
            arguments[self.checkpoint] = saved and saved.history[0].to_json()
        for name in self.contexts:
            arguments[name] = context
        return arguments

    def known(self) -> frozenset[str] | None:
        """Return the accepted param names; None if any is accepted."""
        model = self.params_model
        if model is None or issubclass(model, RootModel) or model.model_config.get("extra") != "forbid":
            return None
        by_name = _by_name(model)
        return frozenset(
            spelled
            for name, field in model.model_fields.items()
            for spelled in _spellings(name, field, by_name=by_name)
        )

    def required(self) -> frozenset[str]:
        model = self.params_model
        if model is None or issubclass(model, RootModel):
            return frozenset()
        fields = model.model_fields.items()
        return frozenset(_spellings(name, field)[0] for name, field in fields if field.is_required())

    def required_spellings(self) -> Iterator[frozenset[str]]:
        """Yield the names that each required param may have."""
        model = self.params_model
        if model is None or issubclass(model, RootModel):
            return
        by_name = _by_name(model)
        for name, field in model.model_fields.items():
            if field.is_required():
                yield frozenset(_spellings(name, field, by_name=by_name))

    @property
    def has_types(self) -> bool:
        """Return whether a value of a param can be wrong."""
        model = self.params_model
        return model is not None and any(field.annotation is not Any for field in model.model_fields.values())

    def value_problem(self, params: dict[str, Any], unresolved: Collection[str] = ()) -> str:
        """Return which value does not fit, before a worker checks it; "" if none is known not to.

        `unresolved`: params whose values, or parts of them, are known when the job runs. What depends on the
        machine or the time is not reported, such as whether a file exists: a validator of the author may look
        for that.
        """
        model = self.params_model
        if model is None or (unresolved and self.whole is not None):
            return ""
        try:
            model.__pydantic_validator__.validate_python(params if self.whole is None else {**params})
        except ValidationError as error:
            return self._first_certain(error, params, unresolved)
        except Exception:  # noqa: BLE001 - a validator of the author: the worker reports what it raises
            return ""
        return ""

    def _first_certain(
        self, error: ValidationError, params: dict[str, Any], unresolved: Collection[str]
    ) -> str:
        by_name: dict[int | str, list[ErrorDetails]] = {}
        for one in error.errors(include_url=False, include_context=False):
            by_name.setdefault(one["loc"][0] if one["loc"] else "", []).append(one)
        for name, errors in by_name.items():
            if name in params and name not in unresolved and all(one["type"] in _CERTAIN for one in errors):
                place, first = _existing_place(params, errors[0]["loc"]), errors[0]
                message = self._field_problem(first["loc"], first["type"], first["msg"])["message"]
                path = "".join(f"[{key!r}]" for key in first["loc"][: len(place)])
                return f"kwargs{path} is {short_repr(place[-1])}: {message}"
        return ""

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the params; None without a model, or if it cannot be expressed."""
        try:
            return None if self.params_model is None else self.params_model.model_json_schema()
        except PydanticInvalidForJsonSchema:
            return None

    def _with_operator_defaults(self, context: HandlerContext) -> dict[str, Any]:
        values = context.param_defaults
        defaults = {name: values[setting] for name, setting in self.operator_params if setting in values}
        return defaults | context.params

    def _check(self, model: type[BaseModel], params: dict[str, Any], arguments: dict[str, Any]) -> None:
        try:
            # The validator itself, once a task: 1.0 µs for a small model, where `model_validate` takes 1.5
            # (2026-11).
            checked: Any = model.__pydantic_validator__.validate_python(params)
        except ValidationError as error:
            raise self._params_error(error) from None
        if self.whole is not None:
            arguments[self.whole] = checked
            return
        if self.takes_rest:
            arguments.update(checked.__pydantic_extra__)
        values = checked.__dict__
        for parameter, field in self.named:
            arguments[parameter] = values[field]

    def _params_error(self, error: ValidationError) -> PermanentError:
        """Return an error naming every invalid param, without the values: they may be secret."""
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        fields = [
            self._field_problem(one["loc"], one["type"], one["msg"]) for one in errors[:MAX_FIELDS_SHOWN]
        ]
        summary = "; ".join(" ".join(filter(None, (one["path"], one["message"]))) for one in fields)
        more = f"; and {len(errors) - len(fields)} more" if len(errors) > len(fields) else ""
        return PermanentError(f"the params do not fit: {summary}{more}", kind="invalid_params", fields=fields)

    def _field_problem(self, place: tuple[int | str, ...], kind: str, message: str) -> dict[str, str]:
        if kind == "missing":
            message = "is required"
        elif kind == "extra_forbidden":
            hint = did_you_mean(str(place[0]), self.known() or ()) if len(place) == 1 else ""
            message = f"is not a param of this handler{f' ({hint})' if hint else ''}"
        else:
            message = message.removeprefix("Value error, ")
            message = message[:1].lower() + message[1:]
        return {"path": format_path(place), "message": message}


def _existing_place(params: Any, path: Sequence[int | str]) -> list[Any]:
    """Return the values along a path, as far as it leads: an error's also names the member of a union."""
    values: list[Any] = []
    for key in path:
        try:
            params = params[key]
        except (KeyError, IndexError, TypeError):
            break
        values.append(params)
    return values


def read_function(
    function: Callable[..., Any], local_names: Mapping[str, Any], *, by_name: bool = False
) -> Signature:
    """Read a function: context parameters, then one model for all params, or params by name.

    `by_name`: a model is the type of one param, as of any other.
    """
    hints = resolve_annotations(function, local_names)
    contexts, others = _split_parameters(list(inspect.signature(function).parameters.values()), hints)
    output_model, output_keys = output_type(hints.get("return"))
    whole = None if by_name else _whole_model(others, hints)
    fields = _fields(others, hints) if whole is None else {}
    takes_rest = any(one.kind is one.VAR_KEYWORD for one in others)
    if whole is not None:
        params_model = forbid_extra(hints[whole])
    elif others or not contexts:
        params_model = _build_model(function, fields, takes_rest=takes_rest)
    else:
        params_model = None
    return Signature(
        contexts=contexts,
        whole=whole,
        named=tuple((name, field) for name, (field, _, _) in fields.items()),
        takes_rest=takes_rest,
        params_model=params_model,
        output_model=output_model,
        output_keys=output_keys,
        operator_params=_operator_params(params_model),
    )


def _whole_model(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> str | None:
    """Return the parameter that receives all params as one model; None without one."""
    for parameter in parameters:
        if is_model(hints.get(parameter.name)) and parameter.kind is not parameter.VAR_KEYWORD:
            others = ", ".join(repr(one.name) for one in parameters if one is not parameter)
            if others:
                raise HandlerInvalid(
                    f"{parameter.name!r} is a model and receives all params; nothing is left for {others}:"
                    " put it into the model"
                )
            return parameter.name
    return None


def read_execute(execute: Callable[..., Any], local_names: Mapping[str, Any]) -> Signature:
    """Read `execute(self, params, checkpoint=None)` of a class. `params` may be annotated with a model."""
    hints = resolve_annotations(execute, local_names)
    contexts, others = _split_parameters(list(inspect.signature(execute).parameters.values())[1:], hints)
    names = [one.name for one in others]
    if not set(names) <= {"params", "checkpoint"}:
        raise HandlerInvalid(f"execute takes (self, params, checkpoint=None), and not {', '.join(names)}")
    annotation = hints.get("params")
    output_model, output_keys = output_type(hints.get("return"))
    params_model = forbid_extra(annotation) if is_model(annotation) else None
    return Signature(
        contexts=contexts,
        whole="params" if "params" in names else None,
        checkpoint="checkpoint" if "checkpoint" in names else None,
        params_model=params_model,
        output_model=output_model,
        output_keys=output_keys,
        operator_params=_operator_params(params_model),
    )


def _operator_params(model: type[BaseModel] | None) -> tuple[tuple[str, str], ...]:
    """Return the params whose fields name a setting (`json_schema_extra={"setting": …}`), with it."""
    extras = (
        {} if model is None else {name: field.json_schema_extra for name, field in model.model_fields.items()}
    )
    return tuple(
        (name, str(extra["setting"]))
        for name, extra in extras.items()
        if isinstance(extra, dict) and "setting" in extra
    )


def forbid_extra(model: type[BaseModel]) -> type[BaseModel]:
    """Return the model with unknown params forbidden, unless it configures `extra` itself."""
    try:
        model.model_rebuild()
    except PydanticUndefinedAnnotation as error:
        raise HandlerInvalid(f"the model {model.__name__} is not complete: {error}") from error
    if issubclass(model, RootModel) or model.model_config.get("extra") is not None:
        return model
    body = {"__module__": model.__module__, "__qualname__": model.__qualname__, "__doc__": model.__doc__}
    made: type[BaseModel] = types.new_class(
        model.__name__, (model,), {"extra": "forbid"}, lambda names: names.update(body)
    )
    return made


def _split_parameters(
    parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]
) -> tuple[tuple[str, ...], list[inspect.Parameter]]:
    """Return the names of the context parameters, and the other parameters."""
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY):
            raise HandlerInvalid(
                f"parameter {one.name!r} cannot be given by name, and params have only names"
            )
    contexts = tuple(one.name for one in parameters if _is_context(one.name, hints))
    return contexts, [one for one in parameters if one.name not in contexts]


def _is_context(name: str, hints: Mapping[str, Any]) -> bool:
    if name not in hints:
        return name in CONTEXT_NAMES
    annotation = hints[name]
    if isinstance(annotation, Unresolved):
        # `if TYPE_CHECKING: from dagmaster import HandlerContext` is how linters want it written.
        return annotation.text.rpartition(".")[2] == HandlerContext.__name__
    return HandlerContext in alternatives(annotation)


def _fields(
    parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]
) -> dict[str, tuple[str, Any, Any]]:
    """Return the field name, type and default of each parameter."""
    fields: dict[str, tuple[str, Any, Any]] = {}
    for number, one in enumerate(parameters):
        if one.kind is one.VAR_KEYWORD:
            continue
        annotation = hints.get(one.name, Any)
        if isinstance(annotation, Unresolved):
            raise HandlerInvalid(
                f"the annotation `{annotation.text}` of parameter {one.name!r} cannot be read"
                f" ({annotation.reason}): "
                "import its names at the top of the module, outside of `if TYPE_CHECKING`"
            )
        field = one.name
        if field.startswith("_") or hasattr(BaseModel, field):
            # `json`, `schema` and `copy` are good param names, and methods of every model.
            field = f"field_{number}"
            annotation = Annotated[annotation, Field(alias=one.name)]
        fields[one.name] = field, annotation, ... if one.default is one.empty else one.default
    return fields


def _build_model(
    function: Callable[..., Any], fields: Mapping[str, tuple[str, Any, Any]], *, takes_rest: bool
) -> type[BaseModel]:
    config = ConfigDict(extra="allow" if takes_rest else "forbid", protected_namespaces=())
    title = "".join(part.capitalize() for part in getattr(function, "__name__", "handler").split("_"))
    definitions: dict[str, Any] = {
        field: (annotation, default) for field, annotation, default in fields.values()
    }
    try:
        return create_model(f"{title}Params", __config__=config, **definitions)
    except (PydanticUserError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise HandlerInvalid(f"its parameters cannot be checked: {reason}") from error


def _by_name(model: type[BaseModel]) -> bool:
    config = model.model_config
    return bool(config.get("populate_by_name") or config.get("validate_by_name"))


def _spellings(name: str, field: FieldInfo, *, by_name: bool = False) -> list[str]:
    """Return the names of a field, the preferred one first."""
    alias = field.validation_alias
    choices: Sequence[Any] = alias.choices if isinstance(alias, AliasChoices) else [alias]
    spelled = [str(one.path[0]) if isinstance(one, AliasPath) else one for one in choices if one is not None]
    return [*spelled, name] if by_name or not spelled else spelled
