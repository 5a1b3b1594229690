"""Check which broker a worker uses, because an environment variable may replace the application's setting."""

from __future__ import annotations

import os
from typing import Any

from celery.utils.log import get_logger
from kombu.utils.url import maybe_sanitize_url

log = get_logger(__name__)
VARIABLES = ("CELERY_BROKER_READ_URL", "CELERY_BROKER_URL")
PROTECTED = ("redis", "amqp")
"""Types of brokers (as kombu names them) whose messages are protected."""


def check_broker(app: Any, kind: str) -> None:
    """Warn if the environment replaces the application's broker. `kind` is kombu's type of the broker in use.

    CELERY_BROKER_URL is also a setting of the control plane, so a worker may get it by mistake. Raise ValueError if the
    protection does not support the broker in use.
    """
    own, used = app.conf.first("broker_read_url", "broker_url"), app.conf.broker_read_url
    variable = next((name for name in VARIABLES if os.environ.get(name)), None)
    if not own or own == used or variable is None:
        return
    text = (
        f"{variable} is {maybe_sanitize_url(used)} in the environment and replaces the broker of this application, "
        f"{maybe_sanitize_url(str(own))}, so this worker receives no task from there"
    )
    if kind not in PROTECTED:
        raise ValueError(f"{text}. Unset {variable} for this worker: it is a setting of the control plane.")
    log.warning("%s. If that is a setting of the control plane, unset it for this worker", text)
