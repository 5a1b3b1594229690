"""API calls about notifications of ends."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from controlplane.core.rest import validate_body
from jobs.api.jobs import Intervention, JobCall
from jobs.api.serializers.jobs import NoteRequest
from jobs.api.serializers.notifications import NotificationFilter, NotificationPage, SecretAnswer
from jobs.selectors.alerts import notifications_of
from jobs.services import notifications
from liveness.api.access import request_credential
from liveness.models import Role


class NotificationsView(JobCall):
    """`GET /notifications`."""

    @extend_schema(operation_id="v1_notifications_list", parameters=[NotificationFilter], responses=NotificationPage)
    def get(self, request: Request) -> Response:
        """Return notifications, latest first, in pages. A client gets only its own."""
        query = NotificationFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        visible = self.within_namespaces(notifications_of(self.owner))
        return Response(paged(NotificationPage, query.page(query.match_rows(visible))))


class NotificationSecretView(JobCall):
    """`GET /notifications/secret`."""

    roles = {"GET": {Role.CLIENT, Role.OPERATOR}}

    @extend_schema(responses=SecretAnswer)
    def get(self, request: Request) -> Response:
        """Return the secret that signs the notifications of the jobs and executions of this token."""
        return Response({"secret": notifications.make_secret(request_credential(request).submitter.pk)})


class SendAgainView(Intervention):
    """`POST /notifications/{id}/send-again`."""

    @extend_schema(request=NoteRequest, responses={204: None})
    def post(self, request: Request, notification: UUID) -> Response:
        """Send a notification again that was given up."""
        body = validate_body(NoteRequest, request.data)
        notifications.send_again(notification, self.by, self.owner, namespaces=self.namespaces, **body)
        return Response(status=204)
