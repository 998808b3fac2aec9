"""The reason of a task whose handler only workers offer that may not have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode
from dagmaster.text_format import age

if TYPE_CHECKING:
    from dagmaster.engine.diagnosis.context import InFlightTask


def untrusted(out: InFlightTask, caller: str, seconds: float) -> Reason:
    """Return the reason of a task whose handler only workers of an untrusted caller offer."""
    why = (
        f"only workers of {caller} offer the handler {out.handler}, whose contract is not theirs: an"
        " administrator has to trust them"
    )
    return Reason(
        code=ReasonCode.HANDLER_UNTRUSTED,
        sentence=f"has been queued on {out.queue} for {age(seconds)}; {why}",
        group_sentence=f"are queued on {out.queue}; {why}",
        data={"queue": out.queue, "seconds": seconds, "handler": out.handler, "caller": caller},
    )
