"""Commands about backfills of triggers."""

from __future__ import annotations

from argparse import Namespace

from controlplane.agent.whole_numbers import whole
from controlplane.client.asynchronous import Client
from controlplane.client.backfills import Backfill
from controlplane.client.output import Output
from controlplane.client.shared_options import AddCommand, add_note
from controlplane.client.short_ids import find_trigger


def add_backfills(command: AddCommand) -> None:
    """Add the commands to the parser."""
    add = command("backfill", begin_backfill, "run a trigger for the past slots of a period", "trigger")
    add("--from", dest="start", required=True, metavar="TIME", help="first time, like 2030-01-31T08:00:00Z")
    add("--to", dest="end", required=True, metavar="TIME", help="first time after the period; not in the future")
    add("--max-running", type=whole, default=1, metavar="N", help="number of executions at once (default: 1)")
    add_note(add)
    add = command("stop-backfill", stop_backfill, "stop a backfill: start no further slot", "trigger")
    add("backfill", metavar="BACKFILL", help="id of the backfill")
    add_note(add)


def begin_backfill(client: Client, given: Namespace, out: Output) -> int:
    trigger = find_trigger(client, given.trigger)
    begun = client.backfill(trigger, given.start, given.end, max_running=given.max_running, note=given.note)
    return show_backfill(begun, out)


def stop_backfill(client: Client, given: Namespace, out: Output) -> int:
    trigger = find_trigger(client, given.trigger)
    return show_backfill(client.stop_backfill(trigger, given.backfill, given.note), out)


def show_backfill(backfill: Backfill, out: Output) -> int:
    counts = ", ".join(f"{backfill[name]} {name}" for name in ("total", "waiting", "running"))
    out.document(backfill) if out.is_json else out.line(f"{backfill['id']} {backfill['state']} {counts}")
    return 0
