"""Requests and responses of the calls about notifications."""

from typing import Any

from django.db.models import Q, QuerySet
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.paging import PageFilter
from controlplane.core.rest import ChoiceField
from jobs.api.serializers.notify import TargetField
from jobs.models import AlertMessage

WAITING, SENT, GIVEN_UP = "waiting", "sent", "given_up"
MATCHING = {
    WAITING: Q(next_try_at__isnull=False),
    SENT: Q(sent_at__isnull=False),
    GIVEN_UP: Q(sent_at__isnull=True, next_try_at__isnull=True),
}


class NotificationAnswer(ModelAnswer):
    state = serializers.SerializerMethodField(help_text="waiting, sent or given_up.")
    type = serializers.SerializerMethodField(help_text="What ended and how, like `job.completed`.")
    job = serializers.SerializerMethodField(help_text="Job that ended. Null: an execution ended.")
    execution = serializers.SerializerMethodField(help_text="Execution that ended. Null: a job ended.")
    url = TargetField()
    error = serializers.CharField(help_text="Error of the last try.")

    class Meta:
        model = AlertMessage
        fields = (
            "id", "type", "url", "state", "tries", "error", "job", "execution", "created_at", "next_try_at", "sent_at",
        )  # fmt: skip

    def get_state(self, message: AlertMessage) -> str:
        return SENT if message.sent_at else WAITING if message.next_try_at else GIVEN_UP

    def get_type(self, message: AlertMessage) -> str:
        return str(message.payload["type"])

    def get_job(self, message: AlertMessage) -> str | None:
        return self.subject_of(message, "job")

    def get_execution(self, message: AlertMessage) -> str | None:
        return self.subject_of(message, "execution")

    def subject_of(self, message: AlertMessage, kind: str) -> str | None:
        is_about = self.get_type(message).startswith(f"{kind}.")
        return str(message.payload["data"]["id"]) if is_about else None


class NotificationPage(serializers.Serializer):
    items = NotificationAnswer(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")


class NotificationFilter(PageFilter):
    """Filter of notifications, and page."""

    state = ChoiceField(sorted(MATCHING), required=False)

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        state = self.validated_data.get("state")
        return rows.filter(MATCHING[state]) if state else rows


class SecretAnswer(serializers.Serializer):
    secret = serializers.CharField(help_text="`whsec_` and bytes in base64: the key of Standard Webhooks.")
