"""Silences of a worker, split where the control plane itself was down and could receive nothing."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol


class OutagePeriod(Protocol):
    """Period in which the control plane could receive nothing."""

    @property
    def began(self) -> datetime: ...
    @property
    def ended(self) -> datetime: ...


class Silence(NamedTuple):
    start: datetime
    end: datetime
    is_outage: bool = False


ReadOutages = Callable[[datetime, datetime], Sequence[OutagePeriod]]


def read_no_outages(start: datetime, end: datetime) -> Sequence[OutagePeriod]:
    return ()


def split_silence(silence: Silence, outages: Sequence[OutagePeriod], longest: timedelta) -> list[Silence]:
    """Return the parts of a silence: the outages in it, and the rest.

    A worker needs some seconds to reconnect after an outage, so a short rest beside an outage is dropped.
    """
    parts: list[Silence] = []
    at = silence.start
    for outage in outages:
        began, ended = max(outage.began, silence.start), min(outage.ended, silence.end)
        if began >= ended:
            continue
        parts += [Silence(at, began), Silence(began, ended, is_outage=True)]
        at = ended
    if not parts:
        return [silence]
    parts.append(Silence(at, silence.end))
    return [part for part in parts if part.is_outage or part.end - part.start > 2 * longest]


def seconds_away(start: float, end: float, outages: Sequence[OutagePeriod]) -> float:
    """Return the seconds of outage between two Unix timestamps."""
    return sum(
        max(0.0, min(end, outage.ended.timestamp()) - max(start, outage.began.timestamp())) for outage in outages
    )
