"""List the quarantine on Redis, or send tasks from it back to their queues."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from kombu import Connection
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.secrets.values import mask_addresses


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m controlplane.agent.celery.quarantine", description=__doc__
    )
    parser.add_argument("broker", help="the address of Redis, as the application has it")
    parser.add_argument("--send", nargs="+", default=[], metavar="ID", help="send these tasks back to their queues")
    arguments = parser.parse_args(argv)
    broker, shown = connect_to_redis(arguments.broker), mask_addresses(arguments.broker)
    if broker is None:
        parser.error(f"{shown} is not the address of a Redis. The page Quarantine sends tasks of RabbitMQ again")
    try:
        return list_or_send(UnackedMessages(broker), arguments.send)
    except (OSError, OperationalError, RedisError) as error:
        print(f"{shown} gives no usable answer: {mask_addresses(str(error))}", file=sys.stderr)  # noqa: T201
        return 1


def connect_to_redis(address: str) -> Connection | None:
    """Return a lazy connection, or None if this is not the address of a Redis."""
    try:
        broker = Connection(address)
        return broker if broker.transport.driver_type == "redis" else None
    except (KeyError, ImportError):
        return None


def list_or_send(unacked: UnackedMessages, tasks: list[str]) -> int:
    status = 0
    for task in tasks:
        sent = unacked.send_again(task)
        print(f"{task}: {'sent' if sent else 'not in quarantine'}")  # noqa: T201
        status |= not sent
    listed = {} if tasks else unacked.quarantined()
    if not tasks and not listed:
        print("No task is in quarantine", file=sys.stderr)  # noqa: T201
    for task, entry in listed.items():
        at = datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="seconds")
        print(f"{task} {entry['name']} {entry['losses']} losses, the last {at}: {entry['reason']}")  # noqa: T201
    unacked.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
