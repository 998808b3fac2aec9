"""How a fan-in folds outputs: the table of graph.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.engine.aggregation import aggregate
from dagmaster.engine.graph import Aggregation
from dagmaster.testing import Driver, a_job, any_of, branch_of, conditional, fan_in, fan_out, join, task


def folded(mode: str, outputs, failed=()):
    return aggregate(Aggregation(mode), outputs, failed)


def test_collect_gives_the_outputs_and_their_number():
    assert folded("collect", [{"a": 1}, None, 3]) == {"results": [{"a": 1}, None, 3], "count": 3}


def test_collect_tells_of_failed_children_only_if_there_are_any():
    failed = [{"index": 1, "error": {"kind": "x"}}]
    assert folded("collect", [1], failed) == {"results": [1], "count": 1, "failed": failed}


def test_concat_flattens_the_lists_of_each_output_one_level_in_key_order():
    outputs = [{"b": [3, [4]], "a": [1, 2], "n": 9}, {"a": []}, {"a": [5]}]
    assert folded("concat", outputs) == {"results": [1, 2, 3, [4], 5], "count": 5}


def test_sum_adds_the_numbers_and_no_booleans():
    assert folded("sum", [{"a": 1, "b": True, "c": "7"}, {"a": 2}]) == {"total": 3, "count": 2}


def test_a_sum_of_integers_is_exact():
    assert folded("sum", [{"a": 2**53}, {"a": 1}])["total"] == 2**53 + 1


def test_a_sum_with_a_float_loses_nothing_on_the_way():
    assert folded("sum", [{"a": 0.1}] * 10)["total"] == 1.0


@pytest.mark.parametrize(("mode", "result"), [("first", 1), ("last", 3)])
def test_first_and_last_give_one_output(mode, result):
    assert folded(mode, [1, 2, 3]) == {"result": result, "count": 3}


@pytest.mark.parametrize("mode", ["first", "last"])
def test_the_first_of_nothing_is_null(mode):
    assert folded(mode, []) == {"result": None, "count": 0}


@given(st.lists(st.dictionaries(st.text(max_size=2), st.integers() | st.floats(-1e9, 1e9))))
@pytest.mark.slow
def test_sum_and_concat_never_depend_on_the_order_of_keys(outputs):
    shuffled = [dict(sorted(output.items(), reverse=True)) for output in outputs]
    for mode in ("sum", "concat"):
        assert folded(mode, outputs) == folded(mode, shuffled)


def test_numbers_that_are_too_large_to_add_fail_the_node():
    driver = Driver(a_job(a="", b="", f=fan_in("a b", "sum")))
    driver.start()
    driver.succeed("a", output={"n": 10**400})
    driver.succeed("b", output={"n": 0.5})
    assert (driver.job.nodes["f"].error or {})["kind"] == "aggregation"


# ── In a job ──


def test_children_are_folded_in_index_order_whatever_order_they_finished_in():
    driver = Driver(a_job(f=fan_out([0, 1, 2]), g=fan_in("f", over="f")))
    driver.start()
    for index in (2, 0, 1):
        driver.succeed(f"f__{index}", output=index)
    assert driver.result == {"results": [0, 1, 2], "count": 3}


def test_a_tolerated_failure_is_left_out_and_named():
    driver = Driver(a_job(f=fan_out([0, 1, 2], tolerate=1), g=fan_in("f", over="f")))
    driver.start()
    driver.fail("f__1")
    driver.succeed("f__0", output=None)
    driver.succeed("f__2", output="c")
    assert driver.result["results"] == [None, "c"]
    assert [item["index"] for item in driver.result["failed"]] == [1]


def test_nodes_are_folded_in_file_order_without_those_that_were_skipped():
    route = conditional(branches={"left": None, "right": None})
    left, right = branch_of("route", "left"), branch_of("route", "right")
    driver = Driver(a_job(route=route, r=right, l=left, also=left, f=fan_in(join("r", "l", "also"))))
    driver.start()
    driver.succeed("also", output=2)
    driver.succeed("l", output=1)
    assert driver.result == {"results": [1, 2], "count": 2}


def test_a_failure_that_was_allowed_has_no_output_to_fold():
    driver = Driver(a_job(a=task(allow_failure=True), f=fan_in("a")))
    driver.start()
    driver.fail("a")
    assert driver.result == {"results": [], "count": 0}


def test_collect_all_has_null_for_each_node_without_an_output():
    route = conditional(branches={"left": None, "right": None})
    graph = a_job(
        route=route, r=branch_of("route", "right"), l=branch_of("route", "left"), a=task(allow_failure=True),
        f=fan_in(join("r", "l", "a"), "collect_all"),
    )  # fmt: skip
    driver = Driver(graph)
    driver.start()
    driver.fail("a")
    driver.succeed("l", output=1)
    assert driver.result == {"results": [None, 1, None], "count": 3}


def test_collect_all_has_null_for_each_failed_child():
    driver = Driver(a_job(f=fan_out([0, 1, 2], tolerate=1), g=fan_in("f", "collect_all", over="f")))
    driver.start()
    driver.fail("f__1")
    driver.succeed("f__0", output="a")
    driver.succeed("f__2", output="c")
    assert (driver.result["results"], driver.result["count"]) == (["a", None, "c"], 3)
    assert [item["index"] for item in driver.result["failed"]] == [1]


def test_an_any_of_folds_what_was_there():
    driver = Driver(a_job(on_failure="continue", a="", b="", f=fan_in(any_of("a", "b"))))
    driver.start()
    driver.succeed("a", output=1)
    assert driver.outputs["f"] == {"results": [1], "count": 1}
