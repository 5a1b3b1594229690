"""Refusals of calls about triggers and their backfills."""

from controlplane.core.problems import Problem


class WrongPeriod(Problem):
    """The period of the backfill is not possible."""

    status = 400
    code = "invalid"


class NoSchedule(Problem):
    """The trigger has no schedule. It starts at signals, so it has no slots to fill."""

    code = "no_schedule"


class BackfillUnknown(Problem):
    """The trigger has no such backfill."""

    status = 404
    code = "not_found"


class BackfillEnded(Problem):
    """The backfill has already ended."""

    code = "backfill_ended"


class TriggerUnknown(Problem):
    """The trigger does not exist."""

    status = 404
    code = "not_found"


class TriggerNameTaken(Problem):
    """Another trigger has this name. Choose another one."""

    code = "name_conflict"


class TriggerChanged(Problem):
    """The trigger was just changed by another call. Both changes together would leave it with two schedules or none."""

    code = "trigger_changed"


class TriggerUnusable(Problem):
    """The stored trigger is no longer valid on this system. Change it."""

    code = "trigger_unusable"


class TriggerPaused(Problem):
    """The trigger is already paused."""

    code = "trigger_paused"


class TriggerNotPaused(Problem):
    """The trigger is not paused."""

    code = "trigger_not_paused"


class EvaluationInFlight(Problem):
    """The trigger is already being evaluated."""

    code = "evaluation_in_flight"
