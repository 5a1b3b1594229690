"""Limits of requests and of stored data. The agent respects them, and the API refuses more."""

from __future__ import annotations

BODY_LIMIT = 1024 * 1024
"""Bytes of a request body."""
BODY_DEPTH_LIMIT = 100
"""Levels of JSON in a request body."""
SIZE_LIMIT = 256 * 1024
"""Bytes of an output, and of an error, as compact JSON in UTF-8. Escaped to ASCII it is at most three times as long, so
it always fits a request."""
CHECKPOINT_LIMIT = 64 * 1024
"""Bytes of a checkpoint, as compact JSON in UTF-8."""
STACK_LIMIT = 64 * 1024
"""Characters of the stacks of an attempt."""
MESSAGE_LIMIT = 1000
"""Characters of texts for people: a reason, a note, the message of a progress report."""
LINE_LIMIT = 8192
"""Bytes of a line of a log."""
REPORT_LINES_LIMIT = 1000
"""Lines of one report."""
LINES_KEPT = 10_000
"""Stored lines of an attempt. One more line shows that there were more."""
RESULT_KEPT = 1024 * 1024
"""Bytes of a result that are read. A larger result is refused."""
PAYLOAD_IN_ENVIRONMENT = 64 * 1024
"""Characters of a payload as JSON. A larger payload is not put into the environment or headers of the code."""
ARGUMENT_LIMIT = 128 * 1024 - 1
"""Bytes of one argument of a program. With the NUL after it, Linux allows 128 KiB (MAX_ARG_STRLEN)."""
ARGUMENTS_LIMIT = 1536 * 1024
"""Bytes of all arguments and variables of a job. Linux allows 2 MiB by default, with the agent's own variables."""
ARGUMENT_OVERHEAD = 9
"""Bytes of each argument or variable besides its text: a pointer and a NUL."""
VARIABLE_MARGIN = 64
"""Bytes of a variable besides its name and value: `=`, and a second name for containers."""
AHEAD_LIMIT = 100
"""Jobs that a worker may hold beyond its slots."""
FENCE_MARGIN = 0.2
"""Part of the timeout. A silent server stops its code this much before its jobs may be given away."""
