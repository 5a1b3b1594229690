"""Logging of the heart: it shares stderr with its worker."""

from __future__ import annotations

import sys

import structlog

from controlplane.agent.clean_text import escape_event
from controlplane.agent.secrets.values import mask_event


def configure_logging(level: int) -> None:
    """Write each event to stderr as one line, even if its values contain line breaks."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ", utc=True),
            structlog.processors.format_exc_info,
            mask_event,
            escape_event,
            structlog.dev.ConsoleRenderer(colors=False, sort_keys=False, pad_event_to=0),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
