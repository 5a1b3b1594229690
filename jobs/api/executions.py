"""API calls about executions."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.media_types import JSONLinesRenderer, JSONRenderer
from controlplane.core.paging import paged
from controlplane.core.rest import validate_body
from jobs.api import examples
from jobs.api.idempotency import KEY, idempotency_key
from jobs.api.jobs import Intervention, JobCall
from jobs.api.logs import JobLogsView, LogFilter, LogPage, ServerLogFilter
from jobs.api.serializers.execution_answers import EventItem, EventPage, ExecutionAnswer, ExecutionFilter, ExecutionPage
from jobs.api.serializers.jobs import JobAnswer, NoteRequest
from jobs.api.serializers.open_executions import ExecutionRequest
from jobs.api.serializers.restarts import RestartRequest
from jobs.api.serializers.waits import AnswerRequest
from jobs.execution_errors import ExecutionUnknown
from jobs.selectors.executions import execution_events, execution_with_steps, step_job_id, visible_executions
from jobs.services import approvals, cancellation, executions, reruns
from jobs.services.approvals import groups_of
from liveness.api.access import NamespaceQuery, request_credential
from liveness.models import Role


class ExecutionsView(JobCall):
    """`GET` and `POST /executions`."""

    @extend_schema(operation_id="v1_executions_list", parameters=[ExecutionFilter], responses=ExecutionPage)
    def get(self, request: Request) -> Response:
        """Return executions, latest first, in pages. A client gets only its own."""
        query = ExecutionFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        visible = self.within_namespaces(visible_executions(self.owner))
        return Response(paged(ExecutionPage, query.page(visible.defer("inputs"))))

    @extend_schema(
        parameters=[KEY, NamespaceQuery],
        request=ExecutionRequest,
        responses={201: ExecutionAnswer, 200: ExecutionAnswer},
        examples=[examples.EXECUTION],
    )
    def post(self, request: Request) -> Response:
        """Submit an execution with all of its steps, or nothing."""
        id, is_new = executions.submit_execution(
            request_credential(request).submitter,
            self.add_idempotency_key(validate_body(ExecutionRequest, request.data)),
            namespace=self.namespace,
        )
        return Response(represent(ExecutionAnswer, execution_with_steps(id)), status=201 if is_new else 200)


class ExecutionView(JobCall):
    """`GET /executions/{id}`."""

    @extend_schema(responses=ExecutionAnswer)
    def get(self, request: Request, execution: UUID) -> Response:
        """Return an execution with its steps and hooks."""
        return Response(represent(ExecutionAnswer, execution_with_steps(execution, self.owner)))


class CancelExecutionView(Intervention):
    """`POST /executions/{id}/cancel`."""

    @extend_schema(request=NoteRequest, responses=ExecutionAnswer)
    def post(self, request: Request, execution: UUID) -> Response:
        """Cancel an execution with its children. Waiting steps end now; workers are asked to cancel live ones."""
        cancellation.cancel_execution(execution, self.by, self.owner, **validate_body(NoteRequest, request.data))
        return Response(represent(ExecutionAnswer, execution_with_steps(execution)))


class RerunExecutionView(Intervention):
    """`POST /executions/{id}/rerun`."""

    @extend_schema(parameters=[KEY], request=NoteRequest, responses={201: ExecutionAnswer, 200: ExecutionAnswer})
    def post(self, request: Request, execution: UUID) -> Response:
        """Run an execution again from its beginning, as a new execution."""
        body = validate_body(NoteRequest, request.data)
        begun, is_new = reruns.rerun_execution(execution, self.by, self.owner, idempotency_key(request), **body)
        return Response(represent(ExecutionAnswer, execution_with_steps(begun)), status=201 if is_new else 200)


class RestartExecutionView(Intervention):
    """`POST /executions/{id}/restart`."""

    @extend_schema(parameters=[KEY], request=RestartRequest, responses={201: ExecutionAnswer, 200: ExecutionAnswer})
    def post(self, request: Request, execution: UUID) -> Response:
        """Run an execution again from where it failed, as a new execution. Steps that had completed are kept.

        With `from_step`, that step and its dependents run again too. With `inputs`, the new execution has other inputs.
        """
        body = validate_body(RestartRequest, request.data)
        begun, is_new = reruns.restart_execution(execution, self.by, self.owner, idempotency_key(request), **body)
        return Response(represent(ExecutionAnswer, execution_with_steps(begun)), status=201 if is_new else 200)


class AnswerStepView(Intervention):
    """`POST /executions/{id}/steps/{key}/answer`."""

    roles = {"POST": {Role.OPERATOR}}

    @extend_schema(request=AnswerRequest, responses=JobAnswer, examples=[examples.ANSWER])
    def post(self, request: Request, execution: UUID, step: str) -> Response:
        """Answer a step that asks people. The first answer counts."""
        body = validate_body(AnswerRequest, request.data)
        job = step_job_id(execution, step)
        person = request_credential(request).person
        approvals.answer_step(job, by=self.by, groups=None if person is None else groups_of(person), **body)
        return self.job_response(job)


class StepLogsView(JobLogsView):
    """`GET /executions/{id}/steps/{key}/logs`."""

    @extend_schema(parameters=[LogFilter], responses=LogPage)
    def get(self, request: Request, execution: UUID, step: str) -> Response:  # type: ignore[override]
        """Return the log lines of a step's code, oldest first."""
        return super().get(request, step_job_id(execution, step, self.owner))


class ServerLogsView(JobCall):
    """`GET /executions/{id}/steps/_server/logs`."""

    renderer_classes = [JSONRenderer, JSONLinesRenderer]

    @extend_schema(parameters=[ServerLogFilter], responses=EventPage)
    def get(self, request: Request, execution: UUID) -> Response:
        """Return the actions of the control plane itself in an execution, oldest first."""
        query = ServerLogFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        if not visible_executions(self.owner).filter(pk=execution).exists():
            raise ExecutionUnknown
        after, limit = query.validated_data["cursor"], query.validated_data["limit"]
        rows = list(execution_events(execution, after, limit + 1))
        page = rows[:limit]
        last = str(page[-1].pk if page else after)
        cursor = last if len(rows) > len(page) else None
        answer: dict[str, Any] = {"items": [represent(EventItem, row) for row in page], "next": cursor, "last": last}
        return Response(answer, headers=JobLogsView.next_page_header(request, cursor))
