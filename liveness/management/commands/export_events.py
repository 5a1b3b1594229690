import time
from typing import Any

from django.core.management.base import CommandParser

from controlplane.core.json_bodies import render_json
from controlplane.core.own_command import OwnCommand
from liveness.api.serializers.events import NumberedEvent
from liveness.selectors.events import complete_events

PAGE = 1000
PAUSE = 2.0
"""Seconds between two queries for new events."""


class Command(OwnCommand):
    help = "Print events as lines of JSON, oldest first: transitions of servers, and actions on all subjects."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--after", type=int, default=0, metavar="ID", help="only events with a higher id")
        parser.add_argument("--follow", action="store_true", help="continue with new events until interrupted")

    def handle(self, *, after: int, follow: bool, **options: Any) -> None:
        item = NumberedEvent()
        try:
            while True:
                while events := complete_events(after, PAGE):
                    for event in events:
                        self.stdout.write(render_json(item.to_representation(event)).decode())
                    after = events[-1].pk
                self.stdout.flush()
                if not follow:
                    return
                time.sleep(PAUSE)
        except KeyboardInterrupt:
            return
