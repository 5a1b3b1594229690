"""Refusals of calls about the running code of a job. The docstring of a class is the message that the caller gets."""

from controlplane.core.problems import Problem


class CodeNotRunning(Problem):
    """No code of the job runs now."""

    code = "code_not_running"
