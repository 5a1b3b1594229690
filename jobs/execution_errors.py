"""Refusals of calls about executions and their steps."""

from controlplane.core.problems import Problem


class ExecutionUnknown(Problem):
    """The execution does not exist or is not yours."""

    status = 404
    code = "not_found"


class ExecutionEnded(Problem):
    """The execution has ended and cannot be changed."""

    code = "execution_ended"


class ExecutionRunning(Problem):
    """The execution has not ended yet."""

    code = "execution_running"


class StepHasChild(Problem):
    """The step is an execution of its own. Act on that execution."""

    code = "step_has_child"


class WrongAnswer(Problem):
    """The answer does not fit the question."""

    status = 400
    code = "invalid"


class NotInGroup(Problem):
    """Only people of a group may answer this step."""

    status = 403
    code = "not_in_group"


class AlreadyAnswered(Problem):
    """The step was already answered."""

    code = "already_answered"


class NotWaiting(Problem):
    """The step does not wait for an answer."""

    code = "not_waiting"


class ExecutionSealed(Problem):
    """The execution is sealed, so no steps can be added."""

    code = "execution_sealed"


class ImpossibleSteps(Problem):
    """The steps do not fit the execution."""

    status = 400
    code = "invalid"
