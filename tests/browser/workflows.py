"""Workflows and handlers of the browser tests: quick ones, one that fails, one that waits, one that runs until told to end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from dagmaster.sdk.handler_registry import handler

if TYPE_CHECKING:
    from collections.abc import Callable


@handler("echo", queue="q")
async def echo(value: Any = None) -> dict[str, Any]:
    return {"value": value}


@handler("numbers", queue="q")
async def numbers(count: int) -> dict[str, Any]:
    return {"items": list(range(count))}


@handler("break_odd", queue="q")
async def break_odd(number: int, fails: bool) -> dict[str, Any]:
    print(f"tile {number} begins")  # noqa: T201 - the log of the task
    if fails and number % 2:
        raise ValueError(f"tile {number} has no data")
    return {"number": number}


@handler("hang", queue="q")
async def hang() -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


@handler("crash", queue="q")
async def crash(text: str) -> dict[str, Any]:
    raise ValueError(text)


@handler("make_large", queue="q")
async def make_large() -> dict[str, Any]:
    return {"rows": ["x" * 100] * 2_000}


@handler("talk", queue="q")
async def talk(lines: int) -> dict[str, Any]:
    """Write a log with levels, a traceback, colours and markup."""
    log = logging.getLogger("talk")
    for number in range(lines):
        print(f"line {number} of the log")  # noqa: T201 - the log of the task
        if number % 1_000 == 0:
            log.error("tile %s failed", number, exc_info=ValueError(f"no data in {number}"))
            print("\x1b[1;32mgreen\x1b[0m and <img src=x onerror=alert(1)> coloured")  # noqa: T201
            await asyncio.sleep(0)
    return {}


HANDLERS: list[Callable[..., Any]] = [make_large, echo, numbers, break_odd, hang, crash, talk]

HELLO = """
workflow_id: hello
version: 1
inputs: {name: {type: string, default: world}}
nodes:
  greet: {handler: echo, params: {value: "{{ inputs.name }}"}, next: ask}
  ask: {type: approval, message: "publish it?", next: end}
  end: {handler: echo}
"""
TILES = """
workflow_id: tiles
version: 1
inputs: {count: {type: integer, default: 6}, fails: {type: boolean, default: false}}
nodes:
  plan: {handler: numbers, params: {count: "{{ inputs.count }}"}, next: clip}
  clip:
    type: fan_out
    source: "{{ nodes.plan.output.items }}"
    task: {handler: break_odd, params: {number: "{{ item }}", fails: "{{ inputs.fails }}"}, retry: {max_attempts: 1}}
    next: merge
  merge: {type: fan_in}
"""
HANG = """
workflow_id: hang
version: 1
nodes:
  wait: {handler: hang}
"""
TEXT = """
workflow_id: text
version: 1
inputs: {text: {type: string}, fails: {type: boolean, default: false}}
nodes:
  say: {handler: echo, params: {value: "{{ inputs.text }}"}, next: choose}
  choose:
    type: conditional
    condition_field: "{{ inputs.fails }}"
    branches: [{name: bad, condition: "== true", next: crash}, {name: good, default: true, next: end}]
  crash: {handler: crash, params: {text: "{{ inputs.text }}"}, retry: none}
  end: {handler: echo}
"""
LARGE = """
workflow_id: large
version: 1
nodes:
  make: {handler: make_large}
"""
WORKFLOWS = [HELLO, TILES, HANG, TEXT, LARGE]
