"""Start slots of triggers: submit the evaluation, or start the execution at once if the trigger has no action."""

from datetime import datetime
from typing import Any

import structlog

from controlplane.agent.secrets.values import is_secret
from controlplane.core.bounds import moment_after
from controlplane.core.database import transaction
from controlplane.core.transactions import is_transient_error
from jobs.models import TriggerSlot
from jobs.services import execution_rows, executions, submission
from jobs.services.execution_rows import ExecutionPlan
from jobs.states import JobKind, SlotOutcome
from jobs.trigger_errors import TriggerUnusable

log = structlog.get_logger()

RETRY_DELAY = 5
"""Seconds between two tries of an evaluation."""
REASON_LENGTH = 500


CHANGED_FIELDS = ("outcome", "note", "job_id", "execution_id", "is_running", "body")
"""Fields of a slot that this module changes. The caller of `start_execution` saves them."""


def start_slot(slot: TriggerSlot, now: datetime) -> None:
    """Start a queued slot. The caller holds the lock of its trigger."""
    if slot.trigger.action is None:
        start_execution(slot, {**slot.trigger.execution.get("inputs", {}), **describe_slot(slot)})
    else:
        begin_evaluation(slot, now)
    slot.save(update_fields=CHANGED_FIELDS)


def begin_evaluation(slot: TriggerSlot, now: datetime) -> None:
    """Submit the job that evaluates a slot. It expires at the next slot, once all its tries could be over."""
    trigger = slot.trigger
    payload = trigger.payload
    if not isinstance(payload, dict) or is_secret(payload):
        payload = {"payload": payload}
    tries = 1 + trigger.max_retries
    over_at = moment_after(now, tries * (trigger.timeout_seconds + RETRY_DELAY))
    job = {
        "action": trigger.action,
        "payload": {**payload, **describe_slot(slot)},
        "tags": trigger.tags,
        "priority": trigger.priority,
        "worker_slots": trigger.worker_slots,
        "timeout_seconds": trigger.timeout_seconds,
        "max_retries": trigger.max_retries,
        "retry_delay_seconds": RETRY_DELAY,
        "good_until": max(over_at, trigger.next_slot_at or over_at),
    }
    try:
        [job_of_slot] = submission.submit_jobs(None, [job], JobKind.TRIGGER, namespace=trigger.namespace)
    except (LookupError, TypeError, AttributeError) as error:  # another release or a person may have stored it
        raise TriggerUnusable(f"The action of the trigger is not valid ({error!r}): change it.") from error
    slot.job_id, slot.outcome = job_of_slot.id, SlotOutcome.EVALUATING


def start_execution(slot: TriggerSlot, inputs: dict[str, Any]) -> None:
    """Start the execution of a slot. If it cannot start, the slot fails, but not the caller."""
    template = slot.trigger.execution
    inputs = {**inputs, **describe_signal(slot)}
    try:
        if (size := execution_rows.count_payload_bytes(template, inputs)) > execution_rows.PAYLOAD_BYTES_LIMIT:
            slot.outcome, slot.note = SlotOutcome.FAILED, f"its inputs, which every step gets, have {size} bytes"
            return
        chain = (*slot.trigger_chain, slot.trigger_id)
        plan = ExecutionPlan(
            template, None, inputs, slot.trigger.namespace, trigger=slot.trigger_id, trigger_chain=chain
        )
        with transaction.atomic():
            [slot.execution_id] = executions.begin_executions([plan])
        slot.outcome, slot.is_running, slot.body = SlotOutcome.FIRED, True, None
    except Exception as error:
        if is_transient_error(error):
            raise
        log.exception("The execution of a slot could not begin", trigger=slot.trigger.name)
        why = f"{type(error).__name__}: {error}".replace("\0", "")[:REASON_LENGTH]
        slot.outcome, slot.note = SlotOutcome.FAILED, f"its execution could not begin: {why}"


def describe_slot(slot: TriggerSlot) -> dict[str, Any]:
    """Return the data that an evaluation gets, or the execution if there is no evaluation."""
    return {"trigger": slot.trigger.name, "slot": slot.slot.isoformat(), **describe_signal(slot)}


def describe_signal(slot: TriggerSlot) -> dict[str, Any]:
    """Return the signal of a slot as inputs. Empty for a slot of a schedule."""
    return {} if slot.signal is None else {"signal": slot.signal, "body": slot.body}
