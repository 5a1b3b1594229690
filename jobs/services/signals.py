"""Signals: named messages for steps that wait and for triggers. The control plane sends some when executions end.

A signal goes to every step of its namespace that waits for its name (jobs/services/waits.py), and to every trigger on
it (jobs/services/trigger_tick.py). It is kept for a time, so that a step that waits later gets it too.
"""

from typing import Any

import structlog

from controlplane.agent.limits import SIZE_LIMIT
from controlplane.core.json_bodies import size_of, write_json
from controlplane.core.transactions import retried_atomic
from jobs.errors import KeyTaken, SignalTooLarge, TryAgain
from jobs.models import Signal
from jobs.sql import sql
from jobs.sql.rows.signals import StoredSignal
from liveness.models import ApiToken

log = structlog.get_logger()


@retried_atomic
def send_signal(
    owner: ApiToken, name: str, body: Any, *, namespace: str, key: str | None = None
) -> tuple[StoredSignal, bool]:
    """Store a signal. Return it, and True if it is new. `deliver_signals` gives it to the steps that wait.

    A call with the same key returns the same signal. Raises SignalTooLarge, and KeyTaken if the key belongs to other
    content.
    """
    if (size := size_of(body)) > SIZE_LIMIT:
        raise SignalTooLarge(f"The body of the signal has {size} bytes of JSON, but may have at most {SIZE_LIMIT}.")
    text = write_json(body).decode()
    stored = sql.store_signal.fetch_row(owner=owner.pk, namespace=namespace, name=name, body=text, key=key)
    if stored is not None:
        log.info("Signal sent", signal=name, namespace=namespace, by=owner.name)
        return stored, True
    known = Signal.objects.filter(owner=owner, key=key).first()
    if known is None:
        raise TryAgain
    if (known.namespace, known.name, known.body) != (namespace, name, body):
        raise KeyTaken(f"The key {key!r} was used before, for another signal.", signal=str(known.pk))
    return StoredSignal(known.pk, known.name, known.created_at), False
