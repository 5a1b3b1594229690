from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import Exists, OuterRef

from controlplane.core.durations import parse_duration
from jobs.models import AlertMessage, AlertMute, Incident
from jobs.services import alerts
from jobs.services.alert_rules import RULES
from liveness.management.operator_command import OperatorCommand
from liveness.selectors.clock import database_time


class Command(OperatorCommand):
    help = "List open incidents and muted rules, send a test message, or mute a rule."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", nargs="?", default="list", choices=["list", "test", "mute", "unmute"])
        parser.add_argument("rule", nargs="?", default="all", choices=["all", *RULES])
        parser.add_argument("--for", dest="duration", default="1h", help="how long to mute: 30m, 2h, 1d")

    def handle(self, *, action: str, rule: str, duration: str, note: str, **options: Any) -> None:
        match action:
            case "test":
                self.send_test()
            case "mute":
                try:
                    seconds = parse_duration(duration)
                except ValueError as error:
                    raise CommandError(f"--for: {error}") from None
                until = alerts.mute(rule, seconds or 0, self.actor, note)
                self.stdout.write(f"{rule}: muted until {until:%Y-%m-%d %H:%M:%S} UTC")
            case "unmute":
                alerts.mute(rule, 0, self.actor, note)
                self.stdout.write(f"{rule}: no longer muted")
            case _:
                self.list_incidents()

    def send_test(self) -> None:
        results = alerts.send_test()
        if not results:
            raise CommandError("No channel is set. Set ALERTS_WEBHOOK_URLS, ALERTS_EMAIL_TO or ALERTS_APPRISE_URLS.")
        for channel, error in results.items():
            self.stdout.write(f"{channel}: {error or 'sent'}")
        if any(results.values()):
            raise CommandError("The test failed for at least one channel; see the errors above.")

    def list_incidents(self) -> None:
        has_message = Exists(AlertMessage.objects.filter(incident=OuterRef("pk")))
        for incident in Incident.objects.filter(ended_at=None).annotate(has_message=has_message).order_by("opened_at"):
            hint = "" if incident.has_message else " (no message was sent)"
            self.stdout.write(f"{incident.opened_at:%Y-%m-%d %H:%M:%S} UTC {incident.rule}: {incident.summary}{hint}")
        for muted in AlertMute.objects.filter(until__gt=database_time()).order_by("rule"):
            self.stdout.write(
                f"muted: {muted.rule} until {muted.until:%Y-%m-%d %H:%M:%S} UTC by {muted.by} {muted.note}"
            )
