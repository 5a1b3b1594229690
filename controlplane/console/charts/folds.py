"""Folding of an execution's steps, so that hundreds of steps fit on a screen.

Steps whose keys differ only in numbers are folded into one lane. Neighbouring steps that ended well or still wait are
folded too. Failed and running steps of a fold get their own lanes below it, if they are few. In a large execution,
several steps may share a row (`list_step_times`).
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from controlplane.console.doubt import doubt_about
from jobs import states
from jobs.sql.rows.step_times import StepTimes
from jobs.states import JobState

FEW = 20
"""Largest number of steps that each have their own lane."""
MOST_LANES = 24
ALIKE = 3
STAND_OUT = 8
MEMBERS_SHOWN = 100
"""Largest number of steps that an open fold shows."""

FAILURES = {JobState.FAILED, JobState.EXPIRED}
SETTLED = states.TERMINAL - FAILURES
COUNTED_IN_ORDER = [
    "FAILED", "EXPIRED", "CANCELLED", "RUNNING", "CLAIMED", "PENDING", "BLOCKED", "SKIPPED", "COMPLETED", "kept",
]  # fmt: skip


@dataclass(frozen=True)
class Fold:
    """Steps that share a lane."""

    id: str
    label: str
    rows: Sequence[StepTimes]
    is_open: bool = False

    @property
    def number(self) -> int:
        """Return the number of its steps."""
        return count_steps(self.rows)

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Return the number of steps in each state, worst state first.

        Steps kept from an earlier run are counted separately.
        """
        counted: Counter[str] = Counter()
        for row in self.rows:
            counted[describe_state(row)] += row.steps
        return sorted(counted.items(), key=lambda item: COUNTED_IN_ORDER.index(item[0].partition(",")[0]))


Row = StepTimes | Fold


def count_steps(rows: Iterable[StepTimes]) -> int:
    return sum(row.steps for row in rows)


def count_by_state(rows: Iterable[StepTimes]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for row in rows:
        counted[row.state] += row.steps
    return counted


def describe_state(step: StepTimes) -> str:
    doubt = doubt_about(step.state, step.server_state)
    return "kept" if step.is_kept else f"{step.state}, {doubt}" if doubt else step.state


def fold_steps(steps: Sequence[StepTimes], opened: Collection[str] = ()) -> list[Row]:
    """Return the lanes from top to bottom. The steps of folds whose ids are in `opened` get their own lanes."""
    if count_steps(steps) <= FEW:
        return list(steps)
    rows = fold_neighbours(fold_alike(steps), lambda row: "idle" if is_idle(row) else id(row), ALIKE)
    if len(rows) > MOST_LANES:
        rows = fold_neighbours(rows, lambda row: kind_of(row))
    if len(rows) > MOST_LANES:
        size = math.ceil(len(rows) / MOST_LANES)
        place = {id(row): number // size for number, row in enumerate(rows)}
        rows = fold_neighbours(rows, lambda row: place[id(row)])
    own = list_outstanding([step for row in rows if isinstance(row, Fold) for step in row.rows])
    return [lane for row in rows for lane in unfold(row, opened, own)]


def list_outstanding(steps: Sequence[StepTimes]) -> set[UUID]:
    """Return the folded steps that get their own lane: the first failed ones, and the live ones if few."""
    failed = [step.job for step in steps if step.state in FAILURES and step.steps == 1]
    live = [step for step in steps if step.state in states.LIVE]
    return {*failed[:STAND_OUT], *([step.job for step in live] if count_steps(live) <= STAND_OUT else [])}


def fold_alike(steps: Sequence[StepTimes]) -> list[Row]:
    families: dict[tuple[str, bool], list[StepTimes]] = {}
    for step in steps:
        families.setdefault((step.family, step.is_hook), []).append(step)
    return [
        row
        for (name, _), members in families.items()
        for row in ([Fold(name, name, members)] if must_fold(members) else members)
    ]


def must_fold(members: Sequence[StepTimes]) -> bool:
    return count_steps(members) >= ALIKE or any(step.steps > 1 for step in members)


def kind_of(row: Row) -> Hashable:
    """Return the kind of a row. Neighbours of the same kind are folded."""
    if isinstance(row, Fold):
        return id(row)
    if row.state in SETTLED:
        return "settled"
    if row.state in states.LIVE:
        return "live"
    return "waiting" if row.state in states.OPEN else id(row)


def is_idle(row: Row) -> bool:
    """Return True if the step has nothing to draw: it did not run in this execution, or not yet."""
    return not isinstance(row, Fold) and (row.is_kept or row.state in (JobState.SKIPPED, JobState.BLOCKED))


def fold_neighbours(rows: Iterable[Row], kind: Callable[[Row], Hashable], least: int = 2) -> list[Row]:
    folded: list[Row] = []
    for _, group in groupby(rows, kind):
        some = list(group)
        folded += some if len(some) < least else [join_rows(some)]
    return folded


def join_rows(rows: Sequence[Row]) -> Fold:
    steps = [step for row in rows for step in (row.rows if isinstance(row, Fold) else [row])]
    first, last = (name_row(rows[place]) for place in (0, -1))
    return Fold(f"{first}…", f"{first} … {last}", steps)


def name_row(row: Row) -> str:
    return row.label if isinstance(row, Fold) else row.step


def unfold(row: Row, opened: Collection[str], own: Collection[UUID]) -> list[Row]:
    """Return the lane of a fold, followed by the lanes of those of its steps that have their own lane."""
    if not isinstance(row, Fold):
        return [row]
    if row.id in opened:
        single = (step for step in row.rows if step.steps == 1)
        first = sorted(single, key=lambda step: (step.state not in FAILURES, step.state not in states.LIVE))
        shown = sorted(first[:MEMBERS_SHOWN], key=lambda step: step.position)
        return [Fold(row.id, row.label, row.rows, is_open=True), *shown]
    return [row, *(step for step in row.rows if step.job in own)]
