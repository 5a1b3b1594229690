"""How the log tells of requests that Django refuses before any view is asked."""

import logging


def write_on_one_line(record: logging.LogRecord) -> bool:
    """A filter of the log: what Django refuses as suspicious is the caller's fault, and no traceback of ours."""
    if record.name.startswith("django.security."):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = record.exc_text = None
    return True
