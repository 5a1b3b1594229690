"""List the quarantine on Redis, or send tasks from it back to their queues."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from kombu import Connection

from controlplane.agent.celery.broker.unacked import UnackedMessages


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m controlplane.agent.celery.quarantine", description=__doc__
    )
    parser.add_argument("broker", help="the address of Redis, as the application has it")
    parser.add_argument("--send", nargs="+", default=[], metavar="ID", help="send these tasks back to their queues")
    arguments = parser.parse_args(argv)
    unacked, status = UnackedMessages(Connection(arguments.broker)), 0
    for task in arguments.send:
        sent = unacked.send_again(task)
        print(f"{task}: {'sent' if sent else 'not in quarantine'}")  # noqa: T201
        status |= not sent
    for task, entry in () if arguments.send else unacked.quarantined().items():
        at = datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="seconds")
        print(f"{task} {entry['name']} {entry['losses']} losses, the last {at}: {entry['reason']}")  # noqa: T201
    unacked.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
