"""How much the control plane takes at once, and keeps: the agent keeps to it, and the API refuses what is beyond."""

from __future__ import annotations

BODY_LIMIT = 1024 * 1024
"""Bytes of a body."""
BODY_DEPTH_LIMIT = 100
"""Levels of JSON in a body."""
SIZE_LIMIT = 256 * 1024
"""Bytes of an output, and of an error, as compact JSON in UTF-8. Escaped to ASCII it is at most three times as long,
so it fits a body however a worker writes it."""
CHECKPOINT_LIMIT = 64 * 1024
"""Bytes of a checkpoint, as compact JSON in UTF-8."""
MESSAGE_LIMIT = 1000
"""Characters of what people read: a reason, a note, how far a job has come."""
LINE_LIMIT = 8192
"""Bytes of a line of a log."""
REPORT_LINES_LIMIT = 1000
"""Lines of one report."""
LINES_KEPT = 10_000
"""Lines of an attempt; one more tells that there were more."""
RESULT_KEPT = 1024 * 1024
"""Bytes of what code hands back that are read; who has more to say than that says too much."""
PAYLOAD_IN_ENVIRONMENT = 64 * 1024
"""Characters of a payload as JSON; a larger one is not in the environment, or the headers, of its code."""
FENCE_MARGIN = 0.2
"""Of its timeout: so much sooner than its jobs may be given away a silent server stops their code."""
