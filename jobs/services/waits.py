"""Ends steps that wait without a worker.

A wait is a RUNNING step that no worker holds, so it takes no slot and survives every restart. All waits that are due
are found by an index, whatever else waits.
"""

from collections import Counter

from jobs.conf import conf
from jobs.services import recovery
from jobs.sql import sql

SIGNALS_BATCH = 1000


def end_waits() -> dict[str, int]:
    """End the waits whose time or signal has come, or that timed out, at each tick. Return their number by state."""
    ended = Counter(recovery.sweep_in_batches(sql.end_due_waits, is_expected=True))
    ended.update(deliver_signals())
    ended.update(recovery.sweep_in_batches(sql.end_timed_out_waits))
    return dict(ended)


def deliver_signals() -> dict[str, int]:
    """Give new signals to the steps that wait for them. Return the number of ended steps by state.

    A signal and a wait may be committed at the same moment. Each is looked at after its own commit, so one of them sees
    the other. Steps in trees that another transaction has locked get their signal at the next tick.
    """
    kept = conf().signal_kept
    signals = [row.id for row in sql.list_signals_to_deliver.fetch_rows(batch=SIGNALS_BATCH)]
    ended = recovery.sweep_in_batches(sql.end_signalled_waits, is_expected=True, signals=signals, signal_kept=kept)
    sql.settle_signals.fetch_rows(signals=signals, signal_kept=kept)
    return ended
