"""The reasons of nodes that wait for a person, a signal or a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode, format_time
from dagmaster.engine.graph import HOLD_DESCRIPTION, OnTimeout
from dagmaster.text_format import age, format_list

if TYPE_CHECKING:
    from dagmaster.engine.graph import ApprovalSpec, WaitSpec


def waiting_for_approval(spec: ApprovalSpec, message: str, wake_at: float | None, now: float) -> Reason:
    approval = f"approval by {format_list(spec.approvers, conjunction='or') if spec.approvers else 'anyone'}"
    end = "" if wake_at is None else f"; {_on_timeout(spec)} in {age(wake_at - now)}"
    return Reason(
        code=ReasonCode.APPROVAL,
        sentence=f"waits for {approval}{f': {message}' if message else ''}{end}",
        group_sentence=f"wait for {approval}",
        data={"approvers": list(spec.approvers), "message": message or None, "until": format_time(wake_at)},
    )


def _on_timeout(spec: ApprovalSpec) -> str:
    return "is approved by timeout" if spec.on_timeout is OnTimeout.APPROVE else "times out"


def waiting_for_signal_or_time(spec: WaitSpec, wake_at: float | None, now: float) -> Reason:
    until = format_time(wake_at)
    if spec.is_hold:
        return _open_context(spec, wake_at, now)
    if spec.signal is not None:
        end = "" if wake_at is None else f"; times out in {age(wake_at - now)}"
        return Reason(
            code=ReasonCode.SIGNAL,
            sentence=f"waits for signal {spec.signal}{end}",
            group_sentence=f"wait for signal {spec.signal}",
            data={"signal": spec.signal, "until": until},
        )
    left = 0.0 if wake_at is None else wake_at - now
    return Reason(
        code=ReasonCode.WAIT_UNTIL,
        sentence=f"waits for another {age(left + 0.999)}"
        if left > 0
        else "has finished waiting and continues now",
        group_sentence="wait for a time",
        data={"at": until},
    )


def _open_context(spec: WaitSpec, wake_at: float | None, now: float) -> Reason:
    place = spec.description.partition(f"{HOLD_DESCRIPTION}: ")[2]
    end = "" if wake_at is None else f"; if that process is gone, it ends in {age(wake_at - now)}"
    return Reason(
        code=ReasonCode.OPEN_CONTEXT,
        sentence=f"keeps the job open: its context is open{place and f' at {place}'}{end}",
        group_sentence="keep the job open: its context is open",
        data={"place": place or None, "until": format_time(wake_at)},
    )
