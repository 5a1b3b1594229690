"""Holds: an operator stops the start of some work for a while, and lets it go on later.

A hold acts from its commit, because claims and starts have it as a condition (`is_held_set` and `is_held_by_itself` in
jobs/sql/rules.sql). A hold of a tag, a queue or a namespace writes nothing to the jobs that it covers. Jobs of other
holds are parked afterwards (`hold_parking`).
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.choices import HoldMode, HoldOf
from jobs.conf import conf
from jobs.errors import HoldUnknown
from jobs.models import Hold
from jobs.selectors.holds import holds_in_force
from jobs.services import drafts, hold_parking, limits
from jobs.services.hints import announce_work
from jobs.services.refusals import build_refusal
from jobs.sql import sql
from liveness.errors import WrongNamespace
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Mover
from liveness.states import Subject as SubjectType

KEPT_AFTER_END = 86400.0
"""Seconds for which an ended hold is kept at least."""


def create_hold(
    kind: HoldOf,
    value: str,
    by: str,
    note: str = "",
    *,
    mode: HoldMode = HoldMode.PAUSE,
    seconds: float | None = None,
    namespace: str | None = None,
    key: str | None = None,
) -> tuple[Hold, bool]:
    """Hold work, for `seconds` or until it is released. Return the hold, and whether it is new.

    `namespace` limits it to work of this namespace; None means all. A call with the same key returns the same hold.
    """
    ends_at: Any = None if seconds is None else ClockTimestamp() + timedelta(seconds=seconds)
    fields = {"kind": kind, "value": value, "namespace": namespace, "mode": mode, "note": note, "ends_at": ends_at}
    hold, is_new = store_hold(fields, by, note, key)
    if is_new:
        hold_parking.try_to_settle_holds()
    return hold, is_new


@retried_atomic
def store_hold(fields: dict[str, Any], by: str, note: str, key: str | None) -> tuple[Hold, bool]:
    if key is None:
        hold, is_new = Hold.objects.create(by=by, **fields), True
    else:
        hold, is_new = Hold.objects.get_or_create(by=by, key=key, defaults=fields)
    if is_new:
        record_action("create_hold", by, note, subject_of(hold))
        if sql.recheck_keys_of_held_executions.fetch_rows():
            limits.settle_soon()
    return Hold.objects.get(pk=hold.pk), is_new


def release_hold(hold: UUID, by: str, note: str = "", namespaces: Collection[str] | None = None) -> None:
    """End a hold, so that its work starts again. Raises HoldUnknown.

    `namespaces` are those of the caller (None: all). Raises WrongNamespace for a hold of all namespaces if they are
    fewer.
    """
    end_hold_by_hand(hold, by, note, namespaces)
    hold_parking.try_to_settle_holds()


@retried_atomic
def end_hold_by_hand(hold: UUID, by: str, note: str, namespaces: Collection[str] | None) -> None:
    row = holds_in_force(namespaces).filter(pk=hold).first()
    if row is None:
        raise HoldUnknown
    if namespaces is not None and row.namespace is None:
        raise WrongNamespace("The hold counts for all namespaces. Only an operator of all namespaces may release it.")
    if not end_hold(row):
        raise HoldUnknown
    record_action("release_hold", by, note, subject_of(row))


@retried_atomic
def end_expired_hold(hold: UUID) -> bool:
    """End a hold whose time is over. Return False if it has ended already."""
    row = Hold.objects.filter(pk=hold).first()
    if row is None or not end_hold(row, is_due=True):
        return False
    record_action("hold_ended", Mover.LIVENESS, row.note, subject_of(row))
    return True


def sweep_holds() -> dict[str, int]:
    """End the holds whose time is over, delete old ones, park and unpark jobs. Return the numbers that are not 0."""
    ended = end_expired_holds()
    sql.delete_ended_holds.fetch_rows(kept=max(KEPT_AFTER_END, 2 * (conf().unmatched_after or 0)))
    return ({"ended": ended} if ended else {}) | hold_parking.settle_holds()


def end_due_holds() -> None:
    """End the holds whose time is over, and unpark jobs of holds that have ended. Called more often than the sweep."""
    end_expired_holds()
    hold_parking.unpark_jobs()


def end_expired_holds() -> int:
    """End the holds whose time is over. Return how many."""
    return sum(end_expired_hold(row.id) for row in sql.list_holds_to_end.fetch_rows())


def end_hold(hold: Hold, *, is_due: bool = False) -> bool:
    """End a hold, start executions that waited for it, and wake workers. Return False if it has ended already."""
    if hold.kind == HoldOf.EXECUTION:
        sql.lock_roots.fetch_rows(executions=[hold.value])
    if not sql.end_hold.fetch_rows(hold=hold.pk, is_due=is_due):
        return False
    if waited := sql.list_waited_keys.fetch_rows():
        sql.note_rechecks.fetch_rows(keys=[row.key for row in waited])
        limits.settle_soon()
    announce_work()
    return True


def subject_of(hold: Hold) -> ActionSubject:
    return ActionSubject(SubjectType.HOLD, hold.pk, str(hold))


def refuse_jobs_on_hold(jobs: Iterable[Mapping[str, Any]], namespace: str) -> None:
    """Raise OnHold if a hold refuses one of these jobs. They are rows to store."""
    rows = [
        {"place": place} | {name: job[name] for name in ("name", "action", "required_tags", "limits") if name in job}
        for place, job in enumerate(jobs)
    ]
    hold = sql.find_refusing_hold.fetch_row(jobs=drafts.dump_sorted_json(rows), namespace=namespace)
    if hold is not None:
        raise build_refusal(hold.id, hold.kind, hold.value, hold.note)
