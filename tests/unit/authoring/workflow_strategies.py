"""Random workflows that are right: every key may be there, every reference leads somewhere."""

from __future__ import annotations

from keyword import iskeyword
from typing import Any

from hypothesis import strategies as st

from dagmaster.engine.graph import Aggregation

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,8}", fullmatch=True)
TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="{"), max_size=12
)
SECONDS = st.integers(1, 86_400) | st.floats(1, 86_400)
ON_TIMEOUT = {"on_timeout": st.sampled_from(["approve", "reject"])}
SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)  # fmt: skip
RETRIES = st.just("none") | st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.integers(1, 1000),
        "backoff": st.sampled_from(["exponential", "linear", "fixed"]),
        "initial_delay_seconds": st.integers(0, 300) | st.floats(0, 300),
        "max_delay_seconds": st.integers(300, 86_400),
        "jitter": st.booleans(),
        "max_lost": st.integers(0, 1000),
    },
)
INPUTS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("integer")},
        optional={
            "default": st.integers(0, 9),
            "minimum": st.integers(-9, 0),
            "maximum": st.integers(9, 99),
            "required": st.booleans(),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={"type": st.just("string"), "default": TEXT, "description": TEXT},
    ),
    st.just({"type": "array", "items": {"type": "string"}, "default": ["a"]}),
    st.just({"type": "object", "properties": {"n": {"type": "integer"}}}),
    st.just({"enum": ["a", "b"], "default": "b", "pattern": "^[ab]$"}),
    st.fixed_dictionaries(
        {"constraints": st.just({"minLength": 1, "maxLength": 40, "format": "uuid"})},
        optional={"required": st.booleans(), "description": TEXT},
    ),
    st.sampled_from(
        [
            {"type": "number", "constraints": {"exclusiveMinimum": 0, "multipleOf": 0.5}},
            {
                "type": "array",
                "constraints": {"minItems": 1, "uniqueItems": True, "contains": {"type": "integer"}},
            },
            {
                "type": "object",
                "properties": {"n": {"type": "integer"}, "title": {"type": "string"}},
                "constraints": {"required": ["n"], "additionalProperties": False},
                "required": True,
            },
        ]
    ),
    st.sampled_from(
        [
            {"type": "uri", "default": "file:///x"},
            {"type": "date-time"},
            {"type": "date"},
            {"type": "number", "maximum": 0.5},
        ]
    ),
)


class Maker:
    """Makes one workflow: nodes that refer only to nodes before them."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.inputs: dict[str, Any] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.leaves: list[str] = []
        # Groups by the group that they are in. Once something comes after a group, it gets no further nodes.
        self.groups: dict[str, str | None] = {}
        self.closed: set[str] = set()

    def workflow(self) -> dict[str, Any]:
        draw = self.draw
        self.inputs = draw(
            st.dictionaries(NAMES.filter(lambda name: not iskeyword(name)), INPUTS, max_size=3)
        )
        if draw(st.booleans()):
            self.nodes["start"] = {"type": "start"} | self.some(description=TEXT)
            self.leaves.append("start")
        for number in range(draw(st.integers(1, 7))):
            self.add(f"n{number}")
        result = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": TEXT.filter(bool),
                    "version": st.integers(1, 2_147_483_647),
                    "description": TEXT,
                    "on_failure": st.sampled_from(["finish_running", "cancel_running", "continue"]),
                    "deadline_seconds": SECONDS,
                    "tags": st.lists(TEXT, max_size=3),
                },
            )
        )
        result |= {"workflow_id": "w", "nodes": self.nodes}
        if self.inputs:
            result["inputs"] = self.inputs
        if draw(st.booleans()):
            result["outputs"] = {"x": self.value(list(self.nodes)), "y": draw(VALUES)}
        return {key: result[key] for key in draw(st.permutations(sorted(result)))}

    def add(self, node_id: str) -> None:
        kinds = [
            "task",
            "task",
            "conditional",
            "fan_out",
            "workflow",
            "approval",
            "wait",
            "end",
            "group",
            "group",
        ]
        before = list(self.nodes)
        node: dict[str, Any] = {}
        # Everything comes after a start.
        if before and ("start" in before or self.draw(st.integers(0, 4))):
            kinds.append("fan_in")
            if self.draw(st.booleans()):
                node["depends_on"] = self.gate(0)
            else:
                self.lead_to(node_id, node)
        kind = self.draw(st.sampled_from(kinds if "depends_on" in node or self.led else kinds[:10]))
        node |= {"type": kind} if kind != "task" or self.draw(st.booleans()) else {}
        node |= self.keys(kind, before, 0)
        if self.draw(st.booleans()):
            node["description"] = self.draw(TEXT)
        self.put_into_group(node, f"g{node_id}")
        self.nodes[node_id] = node
        self.leaves.append(node_id)
        if kind == "group":
            self.groups[node_id] = node.get("group")

    led = False

    def put_into_group(self, node: dict[str, Any], new: str) -> None:
        """Put a node into a group that is open, or into a new one that this declares."""
        if self.draw(st.integers(0, 3)):
            return
        group = self.draw(st.sampled_from([*(name for name in self.groups if name not in self.closed), new]))
        node["group"] = group
        if group == new:
            self.groups[new] = None
            self.leaves.append(new)

    def close(self, name: str) -> None:
        """Let a group, and those in it, get no further nodes."""
        self.closed |= {name} & self.groups.keys()
        for inner in [inner for inner, outer in self.groups.items() if outer == name]:
            self.close(inner)

    def lead_to(self, node_id: str, node: dict[str, Any]) -> None:
        """Lead edges to the node, or make it depend on something where no edge can start."""
        self.led = False
        for source in self.draw(
            st.lists(st.sampled_from(sorted(self.nodes)), min_size=1, max_size=3, unique=True)
        ):
            result = self.nodes[source]
            self.close(source)
            if result.get("type") == "conditional":
                place = self.draw(st.integers(0, len(result["branches"]) - 1))
                self._lead(result["branches"][place], node_id)
            elif result.get("type") != "end":
                self._lead(result, node_id)
        if not self.led:
            node["depends_on"] = self.gate(0)

    def _lead(self, part: dict[str, Any], node_id: str) -> None:
        old = part.get("next", [])
        part["next"] = [*(old if isinstance(old, list) else [old]), node_id]
        if len(part["next"]) == 1 and self.draw(st.booleans()):
            part["next"] = node_id
        self.led = True

    def gate(self, depth: int) -> Any:
        leaf = st.sampled_from(self.leaves)
        if depth > 2 or self.draw(st.booleans()):
            name: str = self.draw(leaf)
            self.close(name)
            return name
        members = [self.gate(depth + 1) for _ in range(self.draw(st.integers(1, 3)))]
        kind = self.draw(st.sampled_from(["list", "all_of", "any_of"]))
        return members if kind == "list" else {kind: members}

    def keys(self, kind: str, before: list[str], nesting: int) -> dict[str, Any]:
        make = {
            "task": self.task,
            "conditional": self.conditional,
            "fan_out": self.fan_out,
            "fan_in": lambda *_: self.some(aggregation=st.sampled_from([mode.value for mode in Aggregation])),
            "workflow": lambda *_: (
                {"workflow_id": "other", "inputs": {"x": self.value(before, nesting)}}
                | self.some(version=st.integers(1, 9))
            ),
            "approval": lambda *_: (
                self.some(approvers=st.lists(TEXT, max_size=2), message=TEXT)
                | self.draw(
                    st.just({}) | st.fixed_dictionaries({"timeout_seconds": SECONDS}, optional=ON_TIMEOUT)
                )
            ),
            "wait": self.wait,
            "end": lambda *_: {},
            "group": lambda *_: {},
        }
        return make[kind](before, nesting)

    def some(self, **keys: st.SearchStrategy[Any]) -> dict[str, Any]:
        result: dict[str, Any] = self.draw(st.fixed_dictionaries({}, optional=keys))
        return result

    def task(self, before: list[str], nesting: int) -> dict[str, Any]:
        params = {"a": self.value(before, nesting), "b": self.draw(VALUES)}
        return {"handler": self.draw(NAMES), "queue": self.draw(NAMES), "params": params} | self.some(
            timeout_seconds=SECONDS,
            dispatch_timeout_seconds=SECONDS,
            retry=RETRIES,
            allow_failure=st.just(False) if nesting else st.booleans(),
        )

    def conditional(self, before: list[str], _: int) -> dict[str, Any]:
        count = self.draw(st.integers(1, 3))
        texts = ["< 10", "in ['a', 'b']", "value == 'x'", "{{ value is none }}", "1 <= value < 3", "> 5MB"]
        branches: list[dict[str, Any]] = [
            {"condition": self.draw(st.sampled_from(texts))} for _ in range(count)
        ]
        if self.draw(st.booleans()):
            branches.insert(self.draw(st.integers(0, count)), {"default": True})
        for number, branch in enumerate(branches):
            if self.draw(st.booleans()):
                branch["name"] = f"b{number}"
                self.leaves.append(f"n{len(self.nodes) - ('start' in self.nodes)}.b{number}")
        return {"condition_field": self.value(before), "branches": branches}

    def fan_out(self, before: list[str], nesting: int) -> dict[str, Any]:
        kind = self.draw(
            st.sampled_from(["task", "task", "workflow", "fan_out"] if nesting < 2 else ["task"])
        )
        child = self.keys(kind, before, nesting + 1) | ({"type": kind} if kind != "task" else {})
        source = (
            self.draw(st.lists(SCALARS, max_size=3))
            if self.draw(st.booleans())
            else self.value(before, nesting)
        )
        keys: dict[str, Any] = (
            {"source": source, "task": child}
            | self.some(max_parallel=st.integers(1, 1_000_000))
            | self.draw(
                st.just({"on_item_error": "tolerate"})
                | st.fixed_dictionaries(
                    {},
                    optional={
                        "tolerate_failures": st.integers(0, 9)
                        | st.sampled_from(["0%", "2%", "2.5%", "100%"]),
                        "on_item_error": st.just("fail"),
                        "fail_fast": st.booleans(),
                    },
                )
            )
        )
        return keys

    def wait(self, before: list[str], _: int) -> dict[str, Any]:
        ways: list[dict[str, Any]] = [
            {"seconds": self.draw(st.integers(0, 9) | st.floats(0, 9))},
            {"seconds": self.value(before)},
            {"until": "2026-01-31T06:00:00Z"},
            {"until": self.value(before)},
            {"signal": "go", "timeout_seconds": 5, "on_timeout": "go_on"},
        ]
        result: dict[str, Any] = self.draw(st.sampled_from(ways))
        return result

    def value(self, before: list[str], nesting: int = 0) -> str:
        """Return an expression without requirements: a default follows whatever may be missing."""
        paths = ["job.id", "env.REGION", *(f"inputs.{name} | default(1)" for name in self.inputs)]
        if nesting:
            paths += ["item", "index"]
        if nesting > 1:
            paths.append("outer.item")
        paths += ["(1 + 2) * 3", "'a' + 'b'"]
        text = self.draw(st.sampled_from(paths))
        return f"{{{{ {text} }}}}" if self.draw(st.integers(0, 3)) else f"{{{{ {text} }}}}{{{{ 1 }}}}"


@st.composite
def workflows(draw: Any) -> dict[str, Any]:
    """Draw a workflow that compiles."""
    return Maker(draw).workflow()
