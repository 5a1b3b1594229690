"""The calls about jobs: what workers and clients say."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api.serializers.jobs import SUBMISSION, SUBMITTED, JobAnswer, JobList, JobRequest
from jobs.api.serializers.workers import (
    ClaimAnswer,
    ClaimRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    ReportsAnswer,
    ReportsRequest,
)
from jobs.conf import conf
from jobs.models import WorkerJob
from jobs.services import claiming, heartbeats, reporting, submission
from liveness.api import views as liveness
from liveness.api.access import RoleCall, ServerCall
from liveness.models import Role


class Registration(liveness.Registration):
    """`POST /servers`, with what a worker needs to know of its attempts' heartbeats."""

    def config(self, server: Any) -> dict[str, Any]:
        return {
            **super().config(server),
            "claimer_heartbeat_interval_seconds": conf().claimer_heartbeat_interval,
            "runner_heartbeat_interval_seconds": conf().runner_heartbeat_interval,
        }


class Heartbeat(ServerCall):
    """`POST /servers/{id}/heartbeat`."""

    @extend_schema(request=HeartbeatRequest, responses=HeartbeatAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """A server is heard, with the attempts it holds, and hears what it is to do."""
        said = HeartbeatRequest(data=request.data)
        said.is_valid(raise_exception=True)
        heard = heartbeats.record(self.server_token, said.beat(), said.held())
        return Response(
            {
                "state": heard.state,
                "heartbeat_interval_seconds": heard.heartbeat_interval,
                "fence_after_seconds": heard.fence_after,
                "cancel": getattr(heard, "cancel", []),
                "lost": getattr(heard, "lost", []),
                "cordoned": heard.cordoned_by is not None,
                "maintenance": getattr(heard, "maintenance", False),
                "drain": None if heard.drain_deadline is None else {"deadline": heard.drain_deadline},
            }
        )


class Claims(ServerCall):
    """`POST /servers/{id}/claims`."""

    @extend_schema(request=ClaimRequest, responses=ClaimAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """Attempts for the worker to run; an empty list when there is nothing to do."""
        said = ClaimRequest(data=request.data)
        said.is_valid(raise_exception=True)
        claimed = claiming.claim(self.server_token, said.validated_data["limit"], said.validated_data.get("request_id"))
        return Response({"attempts": [self.written(attempt) for attempt in claimed]})

    def written(self, attempt: claiming.Claimed) -> dict[str, Any]:
        return {
            "id": attempt.id,
            "number": attempt.number,
            "job": {
                "id": attempt.job,
                "kind": attempt.kind,
                "action": attempt.action,
                "payload": attempt.payload,
                "timeout_seconds": attempt.timeout_seconds,
                "execution": None,
                "step": None,
            },
        }


class Reports(ServerCall):
    """`POST /servers/{id}/reports`."""

    @extend_schema(request=ReportsRequest, responses=ReportsAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """What happened to attempts; a result for each, in order: one refused report never spoils the others."""
        said = ReportsRequest(data=request.data)
        said.is_valid(raise_exception=True)
        results = reporting.record(self.server_token, said.reports_said())
        return Response({"results": [asdict(result) for result in results]})


class Jobs(RoleCall):
    """`POST /jobs`."""

    roles = {"POST": {Role.CLIENT, Role.OPERATOR}}

    @extend_schema(request=SUBMISSION, responses={201: SUBMITTED, 200: SUBMITTED})
    def post(self, request: Request) -> Response:
        """Submit a job, or a list of up to 1000, all or none."""
        many = isinstance(request.data, list)
        header = request.headers.get("Idempotency-Key")
        if many and header is not None:
            raise serializers.ValidationError({"Idempotency-Key": ["For a list, give each job its own `key`."]})
        said = JobList(data=request.data) if many else JobRequest(data=request.data)
        said.is_valid(raise_exception=True)
        wanted = said.validated_data if many else [said.validated_data]
        if header is not None:
            wanted[0]["key"] = self.one_key(header, wanted[0].get("key"))
        submitted = submission.submit(self.token, wanted)
        stored = selectors.jobs().in_bulk([job for job, _ in submitted])
        items = [JobAnswer(stored[job]).data for job, _ in submitted]
        is_new = any(new for _, new in submitted)
        return Response({"items": items} if many else items[0], status=201 if is_new else 200)

    def one_key(self, header: str, field: str | None) -> str:
        if not header or len(header) > 255:
            raise serializers.ValidationError({"Idempotency-Key": ["A text of 1 to 255 characters."]})
        if field is not None and field != header:
            raise serializers.ValidationError({"key": ["The Idempotency-Key header says another key."]})
        return header


class Job(RoleCall):
    """`GET /jobs/{id}`."""

    roles = {"GET": {Role.CLIENT, Role.VIEWER, Role.OPERATOR}}

    @extend_schema(responses=JobAnswer)
    def get(self, request: Request, job: UUID) -> Response:
        """A job with its attempts, its timeline and the reports that came too late."""
        seen = selectors.jobs()
        if self.token.role == Role.CLIENT:
            seen = seen.filter(owner=self.token)
        try:
            return Response(JobAnswer(seen.get(pk=job)).data)
        except WorkerJob.DoesNotExist:
            raise Http404("No job of yours has this id.") from None
