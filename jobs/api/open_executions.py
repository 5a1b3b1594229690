"""API calls about open executions."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.rest import validate_body
from jobs.api import examples
from jobs.api.jobs import Intervention, JobCall
from jobs.api.serializers.execution_answers import ExecutionSummary
from jobs.api.serializers.jobs import NoteRequest
from jobs.api.serializers.open_executions import AddedStepsRequest
from jobs.selectors.executions import visible_executions
from jobs.services import open_executions


class AddStepsView(JobCall):
    """`POST /executions/{id}/steps`."""

    @extend_schema(
        request=AddedStepsRequest,
        responses={201: ExecutionSummary, 200: ExecutionSummary},
        examples=[examples.STEPS],
    )
    def post(self, request: Request, execution: UUID) -> Response:
        """Add steps to an open execution, all or none. Steps that it has with the same content are left out."""
        steps = validate_body(AddedStepsRequest, request.data)["steps"]
        is_new = open_executions.add_steps(execution, steps, self.owner)
        return Response(summary_of(execution), status=201 if is_new else 200)


class SealExecutionView(Intervention):
    """`POST /executions/{id}/seal`."""

    @extend_schema(request=NoteRequest, responses=ExecutionSummary)
    def post(self, request: Request, execution: UUID) -> Response:
        """Seal an open execution. It ends when all of its steps have ended. A second call changes nothing."""
        body = validate_body(NoteRequest, request.data)
        open_executions.seal_execution(execution, self.by, self.owner, **body)
        return Response(summary_of(execution))


def summary_of(execution: UUID) -> object:
    return represent(ExecutionSummary, visible_executions().get(pk=execution))
