"""Log line of requests that Django refuses before any view runs."""

import logging


def write_on_one_line(record: logging.LogRecord) -> bool:
    """Log a suspicious request as a warning on one line. It has no traceback, because the request is at fault."""
    if record.name.startswith("django.security."):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = record.exc_text = None
    return True
