import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from controlplane.core.json_bodies import JSONRenderer
from liveness.api.serializers.events import NumberedEvent
from liveness.selectors.events import complete_events

PAGE = 1000
PAUSE = 2.0
"""Seconds between two looks for more."""


class Command(BaseCommand):
    help = "Write events as lines of JSON, oldest first: what happened to servers, and what was done to everything."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--after", type=int, default=0, metavar="ID", help="only those after this one")
        parser.add_argument("--follow", action="store_true", help="go on with what happens, until interrupted")

    def handle(self, *, after: int, follow: bool, **options: Any) -> None:
        item, renderer = NumberedEvent(), JSONRenderer()
        try:
            while True:
                while events := complete_events(after, PAGE):
                    for event in events:
                        self.stdout.write(renderer.render(item.to_representation(event)).decode())
                    after = events[-1].pk
                self.stdout.flush()
                if not follow:
                    return
                time.sleep(PAUSE)
        except KeyboardInterrupt:
            return
