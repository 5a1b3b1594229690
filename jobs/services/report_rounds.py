"""Rounds of the reports in one call, so that reports of one attempt are applied in their order."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from jobs.services.reports import ENDS, Report, ReportEvent, explain_oversize


@dataclass
class Round:
    """Places of the reports that are applied together, and of those that are only judged afterwards."""

    applied: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)


@dataclass
class ReportedEvents:
    """Events of an attempt in this call: `events` since its last start, `here` in the current round."""

    round: int = 0
    events: set[ReportEvent] = field(default_factory=set)
    here: set[ReportEvent] = field(default_factory=set)


def split_into_rounds(reports: Iterable[Report]) -> list[Round]:
    """Split reports into rounds where one must be applied before the statement of an earlier one of the same attempt.

    Nearly always there is one round. There are never more than a dozen, because a repeated event is only judged.
    """
    made = [Round()]
    attempts: dict[UUID, ReportedEvents] = {}
    for place, report in enumerate(reports):
        so_far, event = attempts.setdefault(report.attempt, ReportedEvents()), report.event
        is_repeated = event in so_far.events and (event in ENDS or event == ReportEvent.STARTED)
        if not is_repeated:
            if so_far.here & ENDS or (event == ReportEvent.STARTED and so_far.here):
                so_far.round, so_far.here = so_far.round + 1, set()
            so_far.here.add(event)
        if so_far.round == len(made):
            made.append(Round())
        if is_repeated or explain_oversize(report):
            made[so_far.round].judged.append(place)
            continue
        made[so_far.round].applied.append(place)
        so_far.events = {event} if event == ReportEvent.STARTED else so_far.events | {event}
    return made
