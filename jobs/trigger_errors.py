"""Errors of backfills of triggers."""

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
