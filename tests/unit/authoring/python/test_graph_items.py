"""Tasks and groups in code: operators, ids, options, and what becomes of their arguments."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from dagmaster import Dependency, Group, ResultCollector, RetryPolicy, Task, create_task, task
from dagmaster.authoring.added_nodes import read_batch
from dagmaster.authoring.graph_parts import GraphPart, check_part
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.authoring.python.task_options import TaskOptions
from dagmaster.authoring.schema import NextModel, TaskModel
from dagmaster.engine.graph import Gate, GateKind, Leaf, TaskSpec
from dagmaster.errors import HandlerInvalid, NodesRejected
from dagmaster.host.snowflakes import LEASED_MACHINES, UnleasedSnowflakes, time_of
from dagmaster.ports.added_nodes import BatchRows, MemberKind, NodeRecord


def f(**kwargs: Any) -> Any:
    return kwargs


@task(queue="light", retry=7, timeout_seconds=30)
def light(x: int = 0) -> int:
    return x


class Meters(float):
    """A float of its own class, as NumPy has them."""


class Names(list[str]):
    """A list of its own class."""


class Pair(NamedTuple):
    """A tuple of its own class."""

    number: int
    name: str


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def tasks(count: int) -> list[Task]:
    return [create_task("m.f", name=f"t{number}") for number in range(count)]


def part(*items: Any, **options: Any) -> GraphPart:
    return collect(list(items), default_queue="q", **options).part


def edges(*items: Any) -> set[tuple[str, str]]:
    """Return the dependencies as names."""
    rows = check_part(part(*items))
    return {(row.previous_id, row.next_id) for row in rows.dependencies}


# ── Operators ──


def test_an_arrow_returns_what_the_source_says():
    a, b, c, d = tasks(4)
    assert (a >> b) is b
    assert (c << b) is c
    others = [c, d]
    assert (a >> others) is others
    assert ([b, c] >> d) is d
    waiting = [c, d]
    assert (waiting << a) is waiting
    assert d.depends_on(a) is d


def test_every_form_of_an_arrow_is_a_dependency():
    a, b, c, d, e = tasks(5)
    a >> b >> [c, d]
    [c, d] >> e
    assert edges(a, b, c, d, e) == {("t0", "t1"), ("t1", "t2"), ("t1", "t3"), ("t2", "t4"), ("t3", "t4")}
    x, y, z = tasks(3)
    x << [y, z]
    [y] << z
    assert edges(x, y, z) == {("t1", "t0"), ("t2", "t0"), ("t2", "t1")}


def test_all_four_kinds_of_dependency_are_of_one_shape():
    a, b = tasks(2)
    first, second = Group("first"), Group("second")
    a >> b >> first >> second
    second >> create_task("m.f", name="last")
    assert b.dependencies == [Dependency(a.id, "task", b.id, "task")]
    assert first.dependencies == [Dependency(b.id, "task", first.id, "group")]
    assert second.dependencies == [Dependency(first.id, "group", second.id, "group")]
    assert edges(a, follows_of(second)) >= {
        ("t0", "t1"),
        ("t1", "first"),
        ("first", "second"),
        ("second", "last"),
    }


def follows_of(group: Group) -> list[Any]:
    return [group, *(group.next or ())]


def test_a_dependency_that_is_written_twice_is_one():
    a, b = tasks(2)
    a >> b
    b.depends_on(a, [a])
    assert len(part(a, b).dependencies) == 1


def test_an_argument_of_the_function_among_the_options_is_a_type_error_that_says_where_it_goes():
    with pytest.raises(TypeError) as error:
        create_task(light, {"y": 1}, queue="own", x=3)  # type: ignore[call-arg]
    assert str(error.value) == (
        "x: not an option of a task (allow_failure, code_fingerprint, dispatch_timeout_seconds, name, queue,"
        " retry, timeout_seconds)."
        " Arguments of the function go into the mapping: create_task(light, {'y': 1, 'x': 3})"
    )


def test_a_task_takes_every_key_that_a_task_has_in_a_file():
    given: TaskOptions = {
        "queue": "own",
        "retry": 2,
        "timeout_seconds": 5,
        "allow_failure": True,
        "dispatch_timeout_seconds": 6,
        "code_fingerprint": "f",
    }
    # A pool is not implemented; the others have their places in a graph, and what a task runs is no option.
    others = {"type", "handler", "params", "pool"}
    assert given.keys() == TaskOptions.__annotations__.keys()
    assert given.keys() == TaskModel.model_fields.keys() - NextModel.model_fields.keys() - others
    task = create_task("m.f", name="n", **given)
    assert part(task).tasks[0].definition == {"handler": "m.f", **given, "retry": {"max_attempts": 2}}
    (spec,) = read_batch(part(task).to_rows(1)).specs
    assert {name: getattr(spec, name) for name in given} == {**given, "retry": RetryPolicy(max_attempts=2)}


def test_the_options_of_a_task_with_options_become_options_of_its_node():
    limited = light.with_options(dispatch_timeout_seconds=6)
    assert create_task(limited).options["dispatch_timeout_seconds"] == 6
    assert create_task(limited, dispatch_timeout_seconds=7).options["dispatch_timeout_seconds"] == 7


@pytest.mark.parametrize("wrong", [5, "m.f", None, {"a": 1}])
def test_an_arrow_to_something_else_is_a_type_error(wrong: Any):
    (a,) = tasks(1)
    with pytest.raises(TypeError):
        a >> wrong
    with pytest.raises(TypeError):
        a >> [wrong]


# ── What comes along ──


def test_what_a_task_waits_for_comes_along_with_its_group_and_the_members():
    a, b, c = tasks(3)
    inner = Group("inner", [b])
    Group("outer", groups=[inner], tasks=[c])
    a >> inner
    assert {one.name for one in collect(b, default_queue="q").items} == {"t0", "t1", "t2", "inner", "outer"}


def test_what_waits_for_a_task_comes_along_only_with_a_new_job():
    a, b = tasks(2)
    a >> b
    assert [one.name for one in collect(a, default_queue="q").items] == ["t0"]
    assert [one.name for one in collect(a, default_queue="q", follows=True).items] == ["t0", "t1"]


def test_lists_of_lists_are_flat():
    a, b, c = tasks(3)
    assert [one.id for one in collect([[a], [[b], c]], default_queue="q").items] == [a.id, b.id, c.id]


def test_lists_and_kwargs_that_are_nested_too_deep_are_errors():
    (a,) = tasks(1)
    deep: Any = [a]
    for _ in range(5_000):
        deep = [deep]
    endless: list[Any] = [a]
    endless.append(endless)
    for items in (deep, endless):
        with pytest.raises(TypeError, match="nested more than 100 deep, or one contains itself"):
            collect(items, default_queue="q")
        with pytest.raises(NodesRejected, match="nested more than 100 deep, or contains itself"):
            collect(create_task("m.f", {"x": items}), default_queue="q")


def test_groups_nest_to_any_depth_and_a_member_is_in_one():
    (a,) = tasks(1)
    group = Group("g0", [a])
    for depth in range(1, 5_000):
        group = Group(f"g{depth}", [group])
    assert len(check_part(part(group)).groups) == 5_000
    with pytest.raises(NodesRejected, match="t0 is in the group g0 already"):
        group.add(a)


def test_a_cycle_through_groups_is_spelled_out():
    a, b = tasks(2)
    group = Group("g", [b])
    a >> group
    b >> a
    with pytest.raises(NodesRejected, match=r"cycle: .*t0.*"):
        check_part(part(a, group))


def test_two_tasks_of_one_name_are_rejected_by_name():
    with pytest.raises(NodesRejected, match="two nodes are named 'twice'"):
        check_part(part(create_task("m.f", name="twice"), create_task("m.f", name="twice")))


def test_a_task_of_another_job_is_rejected():
    a, b = tasks(2)
    a.job_id, a.node_id = 7, "t0"
    a >> b
    with pytest.raises(NodesRejected, match=r"t0 .* is part of job 7, not of job 8"):
        collect(b, job_id=8, default_queue="q")
    with pytest.raises(NodesRejected, match="part of job 7 already: a new job needs new tasks"):
        collect(a, default_queue="q")
    assert collect(b, job_id=7, default_queue="q").part.known == {a.id: "t0"}


def test_a_dependency_of_an_applied_task_is_added_once():
    a, b = tasks(2)
    b.job_id, b.node_id = 7, "t1"
    a >> b
    collected = collect(a, job_id=7, default_queue="q")
    assert [(source, target) for _, source, _, target in collected.part.dependencies] == [(a.id, b.id)]
    collected.mark_applied(7, {a.id: "t0"})
    again = collect([a, b], job_id=7, default_queue="q")
    assert not again.items
    assert not again.part.dependencies


# ── Arguments ──


def test_a_task_in_the_arguments_is_its_result_and_a_dependency():
    a, b = tasks(2)
    c = create_task("m.f", {"data": a, "more": {"list": [1, b]}}, name="c")
    task_part = part(c).tasks[-1]
    assert task_part.with_params()["params"] == {"data": None, "more": {"list": [1, None]}}
    assert task_part.references == [[["data"], a.id], [["more", "list", 1], b.id]]
    assert edges(c) == {("t0", "c"), ("t1", "c")}


def test_a_collector_in_the_arguments_is_the_list_of_results():
    a, b = tasks(2)
    c = create_task("m.f", {"all": ResultCollector([a, b], name="both")}, name="c")
    made = part(c)
    assert made.tasks[-1].references[0][2] == ["results"]
    # The collector waits for what it collects, without a row for each.
    assert edges(c) == {("both", "c")}
    specs = {spec.id: spec for spec in read_batch(made.to_rows(1)).specs}
    assert specs["both"].requires == Gate(GateKind.ALL, (Leaf("t0"), Leaf("t1")))


def test_text_is_a_value_and_never_a_template():
    made = part(create_task("m.f", {"text": "{{ inputs.x }} {% raise %}"}))
    assert made.tasks[0].with_params()["params"] == {"text": "{{ inputs.x }} {% raise %}"}
    assert not made.tasks[0].references


@pytest.mark.parametrize(
    ("kwargs", "place"),
    [
        ({"a": {"b": [1, {2}]}}, r"kwargs\['a'\]\['b'\]\[1\] is of type set, which JSON does not have"),
        ({"x": float("nan")}, r"kwargs\['x'\] is not a JSON number"),
        ({"x": {1: 2}}, r"kwargs\['x'\] has the key 1"),
        ({"x": "a\0b"}, r"kwargs\['x'\] has a NUL character"),
        ({"x": "\ud800"}, r"kwargs\['x'\] has half of a surrogate pair"),
        ({"x": b"bytes"}, r"kwargs\['x'\] is of type bytes"),
        ({"x": Group("g")}, r"kwargs\['x'\] is a group"),
        ([1], "not a mapping"),
    ],
)
def test_an_argument_that_is_not_json_is_rejected_with_the_task_and_the_place(kwargs: Any, place: str):
    with pytest.raises(NodesRejected, match=f"task bad.*{place}"):
        part(create_task("m.f", kwargs, name="bad"))


def test_a_list_that_contains_itself_is_rejected():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NodesRejected, match="contains itself"):
        part(create_task("m.f", {"x": loop}))


# ── Options ──


def test_a_task_without_a_queue_is_rejected_by_name():
    with pytest.raises(NodesRejected, match=r"task f \(m.f\) has no queue: .*DAGMASTER_PYTHON_QUEUE"):
        collect(create_task("m.f"))
    assert collect(create_task(light)).part.tasks[0].definition["queue"] == "light"
    assert collect(create_task(light, queue="own")).part.tasks[0].definition["queue"] == "own"


def test_a_decorated_function_brings_its_options_which_a_task_can_change():
    definition: Any = part(create_task(light, {"x": 1})).tasks[0].definition
    assert definition["retry"]["max_attempts"] == 7
    assert definition["timeout_seconds"] == 30
    changed = (
        part(create_task(light, retry="none", timeout_seconds=5, allow_failure=True)).tasks[0].definition
    )
    assert changed["retry"] == {"max_attempts": 1}
    assert (changed["timeout_seconds"], changed["allow_failure"]) == (5, True)
    assert part(create_task(light.with_options(name="n", queue="w"))).tasks[0].name == "n"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Task(entrypoint="not a name"),
        lambda: Task(entrypoint=".f"),
        lambda: Task(entrypoint=""),
        lambda: Task(entrypoint=5),  # type: ignore[arg-type]
        lambda: create_task("m.f", timeout_seconds=-1),
        lambda: create_task("m.f", queue=""),
        lambda: create_task("m.f", retry={"attempts": 3}),
    ],
)
def test_a_wrong_option_is_rejected_where_it_is_written(make: Any):
    with pytest.raises(HandlerInvalid):
        make()


def test_a_function_has_its_name_as_entrypoint():
    assert create_task(f).entrypoint == f"{__name__}.f"
    assert create_task(light).entrypoint == f"{__name__}.light"


# ── Ids ──


def test_ids_grow_and_have_a_machine_id_that_is_never_leased():
    ids = [one.id for one in tasks(10_000)]
    assert ids == sorted(set(ids))
    assert {number >> 12 & 1023 for number in ids} <= set(range(LEASED_MACHINES, 1024))


def test_ids_of_several_threads_differ_and_have_their_time():
    source = UnleasedSnowflakes()
    before = time.time()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: [source.new() for _ in range(20_000)], range(4)))
    assert len({number for ids in made for number in ids}) == 80_000
    assert all(ids == sorted(ids) for ids in made)
    # A burst may use up ids of the following milliseconds: 80,000 are 20 of them.
    assert before - 0.001 <= time_of(str(min(ids[0] for ids in made)))
    assert time_of(str(max(ids[-1] for ids in made))) <= time.time() + 0.1


def test_a_forked_process_chooses_again():
    source = UnleasedSnowflakes()
    states = set()
    for _ in range(50):
        source.reseed()
        states.add((source._machine, source._offset))
    assert len(states) > 40
    assert hasattr(os, "register_at_fork")


# ── What the owner of the job reads ──


@pytest.mark.parametrize(
    "kwargs",
    [
        {"n": 1},
        {"chunk": [1, 2]},
        {"a": {"b": 1}, "c": "x"},
        {"a": '}, "retry": {"max_attempts": 9', "params": {"params": 1}},
        {"a": ['"params": ', 1.5, None], "references": ["é"], "sources": []},
        {},
    ],
)
def test_a_task_is_read_as_it_was_written(kwargs):
    task = create_task(
        "m.f", kwargs, queue="own", retry={"max_attempts": 3}, timeout_seconds=5, allow_failure=True
    )
    (spec,) = read_batch(part(task).to_rows(1)).specs
    assert isinstance(spec, TaskSpec)
    assert (spec.handler, spec.queue, spec.retry.max_attempts) == ("m.f", "own", 3)
    assert (spec.timeout_seconds, spec.allow_failure, spec.requires) == (5, True, None)
    assert spec.params.is_constant
    assert spec.params.resolve({}) == spec.params.source == kwargs


def test_a_definition_in_another_order_is_also_read():
    definition = '{"params": {"n": 1}, "handler": "m.f", "retry": {"max_attempts": 2}, "queue": "q"}'
    (spec,) = read_batch(BatchRows([NodeRecord(1, "a", None, definition)])).specs
    assert isinstance(spec, TaskSpec)
    assert (spec.params.source, spec.queue, spec.retry.max_attempts) == ({"n": 1}, "q", 2)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"text": "a\\u0000b é 😀"},
        {"pair": (1, (2.5, None)), "flag": True},
        {"nested": {"a": [{"b": "{"}]}},
        {"deep": [[[[[["x"]]]]]] * 40},
        {"enum": MemberKind.TASK, "number": Meters(0.5)},
        *(
            {"value": value, **others}
            for value in (Names("ab"), Pair(1, "x"), MemberKind.TASK, OrderedDict(a=1), {MemberKind.TASK: 1})
            for others in ({}, {"nested": {"a": 1}})
        ),
    ],
)
def test_kwargs_are_the_json_of_their_values(kwargs):
    (made,) = part(create_task("m.f", kwargs)).tasks
    assert made.with_params()["params"] == json.loads(json.dumps(kwargs))


@pytest.mark.parametrize("kwargs", [{1: 2}, {"a": {1: 2}}, {"a": [[{None: 2}]]}, {"a": nested(101)}])
def test_kwargs_that_json_would_change_or_not_hold_are_rejected(kwargs):
    with pytest.raises(NodesRejected, match="task f"):
        part(create_task("m.f", kwargs))


_STEPS = """
import dagmaster
from dagmaster import RetryPolicy, task
raise RuntimeError("the module must not be imported")

@task(queue="own", retry={"max_attempts": 4}, timeout_seconds=12)
def literal(): ...

@dagmaster.task(queue="own", retry=RetryPolicy(max_attempts=4))
def called(): ...

@task(queue="own", retry="none")
def once(): ...

@task(queue="own", retry={[]: 4})
def unhashable(): ...

@task(queue="own", **OPTIONS)
def unpacked(): ...

@task(queue="own", description=TEXT)
def described(): ...

def plain(): ...
"""


@pytest.mark.parametrize(
    ("function", "options"),
    [
        ("literal", ("own", {"max_attempts": 4}, 12)),
        ("called", (None, None, None)),
        ("unhashable", (None, None, None)),
        ("unpacked", (None, None, None)),
        ("described", ("own", None, None)),
        ("once", ("own", {"max_attempts": 1}, None)),
        ("plain", (None, None, None)),
        ("missing", (None, None, None)),
    ],
)
def test_options_of_a_function_that_is_named_are_read_without_an_import(
    tmp_path, monkeypatch, function, options
):
    (tmp_path / "steps_of_options.py").write_text(_STEPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = create_task(f"steps_of_options.{function}")
    assert (made.queue, made.retry, made.timeout_seconds) == options


def test_options_in_a_source_are_read_again_once_the_file_is_edited_or_moved(tmp_path, monkeypatch):
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder in (first, second):
        folder.mkdir()
        monkeypatch.syspath_prepend(str(folder))
    source = "from dagmaster import task\n@task(queue={!r})\ndef f(): ...\n"
    path = second / "steps_of_edits.py"
    for second_of_edit, queue in enumerate(("small", "large", "larger")):
        path.write_text(source.format(queue))
        # The clock of a file system may be too coarse for two edits in a row.
        os.utime(path, (second_of_edit, second_of_edit))
        assert create_task("steps_of_edits.f").queue == queue
    path.rename(first / path.name)
    importlib.invalidate_caches()
    assert create_task("steps_of_edits.f").queue == "larger"
    (first / path.name).write_text(source.format("moved"))
    assert create_task("steps_of_edits.f").queue == "moved"


def test_a_named_function_of_an_imported_module_has_the_options_of_its_task_unless_others_are_given():
    name = create_task(light).entrypoint
    of_text, of_function = create_task(name), create_task(light)
    assert (of_text.queue, of_text.retry, of_text.timeout_seconds) == (
        (of_function.queue, of_function.retry, of_function.timeout_seconds)
    )
    assert (of_text.retry or {})["max_attempts"] == 7
    own = create_task(name, queue="heavy", retry="none", timeout_seconds=1)
    assert (own.queue, own.retry, own.timeout_seconds) == ("heavy", {"max_attempts": 1}, 1)
    assert create_task(f"{__name__}.f").queue is None


def test_names_of_a_later_batch_differ_although_functions_have_similar_names():
    made = part(*(create_task(name) for name in ("m.f", "m.f_1", "n.f", "m.f.g", "m.f_b2", "m.f", "m.f_1")))
    names = list(made.names(2).values())
    assert names == ["f_b2_1", "f_1_b2_1", "f_b2_2", "g_b2_1", "f_b2_b2_1", "f_b2_3", "f_1_b2_2"]
    assert len(set(made.names(1).values())) == len(names)


def test_tasks_of_one_function_have_its_options_or_their_own():
    made = part(
        create_task(light, {"x": 0}), create_task(light, {"x": 1}), create_task(light, {"x": 2}, retry=5)
    )
    found = [
        (spec.params.source, spec.retry.max_attempts, spec.queue)
        for spec in read_batch(made.to_rows(1)).specs
        if isinstance(spec, TaskSpec)
    ]
    assert found == [({"x": 0}, 7, "light"), ({"x": 1}, 7, "light"), ({"x": 2}, 5, "light")]


def test_lists_in_kwargs_are_copied():
    values = [1, 2]
    made = part(create_task("m.f", {"chunk": values}))
    values.append(3)
    assert made.tasks[0].with_params()["params"] == {"chunk": [1, 2]}


@pytest.mark.parametrize("value", [[1.0, float("nan")], ["x", "a\0b"], [1, object()]])
def test_a_list_with_a_value_that_is_not_json_is_rejected(value):
    with pytest.raises(NodesRejected, match="kwargs\\['v'\\]\\[1\\]"):
        part(create_task("m.f", {"v": value}))
