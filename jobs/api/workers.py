"""API calls of workers: heartbeats, claims, reports, and the tasks of Celery workers."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.rest import validate_body
from jobs.api.serializers.celery_tasks import TasksAnswer, TasksRequest, to_tasks
from jobs.api.serializers.reports import ReportsAnswer, ReportsRequest, to_reports
from jobs.api.serializers.workers import (
    ClaimAnswer,
    ClaimRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    describe_claimed,
    describe_heartbeat_answer,
    describe_holders,
    to_heartbeat,
)
from jobs.services import celery_tasks, claiming, heartbeats, reporting
from jobs.services.reports import Result
from liveness.api.access import ServerCall


class HeartbeatView(ServerCall):
    """`POST /servers/{id}/heartbeat`."""

    @extend_schema(request=HeartbeatRequest, responses=HeartbeatAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """Record a heartbeat of a server with the attempts it holds, and return instructions for the server."""
        heard = to_heartbeat(request.data)
        row = heartbeats.record_worker_heartbeat(self.server_token, *heard)
        return Response(
            describe_heartbeat_answer(row, self.server_token) | ({} if heard.holders is None else describe_holders(row))
        )


class ClaimsView(ServerCall):
    """`POST /servers/{id}/claims`."""

    @extend_schema(request=ClaimRequest, responses=ClaimAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """Claim jobs and return their attempts for the worker to run. The list is empty if no job waits for it."""
        body = validate_body(ClaimRequest, request.data)
        attempts, slots_wanted = claiming.claim_jobs(
            self.server_token, body["limit"], body.get("request_id"), body["ahead"]
        )
        answer: dict[str, Any] = {"attempts": [describe_claimed(attempt) for attempt in attempts]}
        return Response(answer if slots_wanted is None else {**answer, "slots_wanted": slots_wanted})


class ReportsView(ServerCall):
    """`POST /servers/{id}/reports`."""

    @extend_schema(request=ReportsRequest, responses=ReportsAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """Record reports about attempts and return their results in order.

        A refused report does not affect the others.
        """
        results = reporting.record_reports(self.server_token, to_reports(request.data))
        return Response({"results": [self.describe_result(result) for result in results]})

    def describe_result(self, result: Result) -> dict[str, Any]:
        """Return the fields of a result, without an empty detail."""
        return {field: value for field, value in vars(result).items() if field != "detail" or value is not None}


class TasksView(ServerCall):
    """`POST /servers/{id}/tasks`."""

    @extend_schema(request=TasksRequest, responses=TasksAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """Record tasks of a Celery worker: some as jobs with attempts, the others as counts by name.

        The worker decides which tasks are recorded. A repeated call changes nothing, because the worker chooses the ids
        of attempts, and counts are sums that only grow.
        """
        return Response(asdict(celery_tasks.record_tasks(self.server_token, **to_tasks(request.data))))
