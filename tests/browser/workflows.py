"""Workflows and handlers of the browser tests: quick ones, one that fails, one that waits, one that runs until told to end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.handler_registry import handler

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


HANDLERS: list[Callable[..., Any]] = [echo, numbers, break_odd, hang]

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
WORKFLOWS = [HELLO, TILES, HANG]
