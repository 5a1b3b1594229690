"""The calls about jobs: what workers and clients say."""

import re
from dataclasses import asdict
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.agent.clean_text import is_clean
from controlplane.agent.tracing import span_of_submission
from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from controlplane.core.rest import StrictSerializer, validate_body
from jobs.api import examples
from jobs.api.serializers.celery_tasks import TasksAnswer, TasksRequest
from jobs.api.serializers.executions import SUBMISSION, JobList, SubmissionRequest
from jobs.api.serializers.jobs import (
    SUBMITTED,
    TRACEPARENT,
    FailRequest,
    JobAnswer,
    JobFilter,
    JobPage,
    NoteRequest,
    PlacementAnswer,
    ResubmitRequest,
)
from jobs.api.serializers.workers import (
    ClaimAnswer,
    ClaimRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    ReportsAnswer,
    ReportsRequest,
    describe_heartbeat_answer,
    describe_holders,
    to_heartbeat,
    to_reports,
)
from jobs.selectors.contents import LARGE, without_large
from jobs.selectors.jobs import jobs_visible_to, jobs_with_attempts, jobs_with_flags
from jobs.selectors.placement import job_placement
from jobs.selectors.submitted import submitted_jobs
from jobs.services import celery_tasks, claiming, heartbeats, interventions, reporting, submission
from jobs.services.reports import Result
from liveness.api.access import NamespaceQuery, RoleCall, ServerCall, request_credential
from liveness.models import Role

KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    OpenApiParameter.HEADER,
    description="The same again makes no second one: it answers the first.",
)

TRACE = OpenApiParameter(
    "traceparent",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="The trace in which a job is submitted (W3C): its code finds it as TRACEPARENT.",
)


def idempotency_key(request: Request) -> str | None:
    """What the header says."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not (0 < len(key) <= 255 and is_clean(key)):
        why = "A text of 1 to 255 characters, none of them a control character."
        raise serializers.ValidationError({"Idempotency-Key": [why]})
    return key


class Heartbeat(ServerCall):
    """`POST /servers/{id}/heartbeat`."""

    @extend_schema(request=HeartbeatRequest, responses=HeartbeatAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """A server is heard, with the attempts it holds, and hears what it is to do."""
        heard = to_heartbeat(request.data)
        row = heartbeats.record_worker_heartbeat(self.server_token, *heard)
        return Response(describe_heartbeat_answer(row) | ({} if heard.holders is None else describe_holders(row)))


class Claims(ServerCall):
    """`POST /servers/{id}/claims`."""

    @extend_schema(request=ClaimRequest, responses=ClaimAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """Attempts for the worker to run; an empty list when there is nothing to do."""
        body = validate_body(ClaimRequest, request.data)
        claimed = claiming.claim_jobs(self.server_token, body["limit"], body.get("request_id"))
        return Response({"attempts": [self.describe_attempt(attempt) for attempt in claimed]})

    def describe_attempt(self, attempt: claiming.ClaimedAttempt) -> dict[str, Any]:
        return {
            "id": attempt.id,
            "number": attempt.number,
            "job": {
                "id": attempt.job,
                "kind": attempt.kind,
                "action": attempt.action,
                "payload": attempt.payload,
                "timeout_seconds": attempt.timeout_seconds,
                "execution": attempt.execution,
                "step": attempt.step,
                "checkpoint": attempt.checkpoint,
                "traceparent": attempt.traceparent,
                "former_traceparent": attempt.former_traceparent,
            },
        }


class Reports(ServerCall):
    """`POST /servers/{id}/reports`."""

    @extend_schema(request=ReportsRequest, responses=ReportsAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """What happened to attempts; a result for each, in order: one refused report never spoils the others."""
        results = reporting.record_reports(self.server_token, to_reports(request.data))
        return Response({"results": [self.describe_result(result) for result in results]})

    def describe_result(self, result: Result) -> dict[str, Any]:
        """Its fields; a detail only where there is one."""
        return {field: value for field, value in vars(result).items() if field != "detail" or value is not None}


class Tasks(ServerCall):
    """`POST /servers/{id}/tasks`."""

    @extend_schema(request=TasksRequest, responses=TasksAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """What became of a Celery worker's tasks: those worth a record become jobs, the others are counted by name.

        The same again changes nothing: an attempt has the id that the worker chose for it, and sums only grow.
        """
        body = TasksRequest(data=request.data)
        body.is_valid(raise_exception=True)
        judged = celery_tasks.record_tasks(self.server_token, **body.to_tasks())
        return Response(asdict(judged))


class JobCall(RoleCall):
    """A call of a client about its own jobs, of an operator about all; a viewer may only look."""

    roles = {"GET": {Role.CLIENT, Role.VIEWER, Role.OPERATOR}, "POST": {Role.CLIENT, Role.OPERATOR}}

    @property
    def owner(self) -> UUID | None:
        """Whose jobs alone are reached; None: everybody's."""
        return self.token.pk if self.token.role == Role.CLIENT else None

    @property
    def trace_of_caller(self) -> str | None:
        """What the header says. What is no trace is passed over, as the standard wants it of headers."""
        header = self.request.headers.get("traceparent", "")
        return header if re.match(TRACEPARENT, header) else None

    def add_idempotency_key(self, fields: dict[str, Any]) -> dict[str, Any]:
        """What was said, with the key of the header where the body has none."""
        header = idempotency_key(self.request)
        if header is not None and fields.setdefault("key", header) != header:
            raise serializers.ValidationError({"key": ["The Idempotency-Key header has another key."]})
        return fields


class Jobs(JobCall):
    """`GET` and `POST /jobs`."""

    @extend_schema(operation_id="v1_jobs_list", parameters=[JobFilter], responses=JobPage)
    def get(self, request: Request) -> Response:
        """Jobs, latest first, a page at a time; a client's own."""
        query = JobFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        visible = self.within_namespaces(jobs_visible_to(self.owner))
        return Response(paged(JobPage, query.page(without_large(visible))))

    @extend_schema(
        parameters=[KEY, TRACE, NamespaceQuery], request=SUBMISSION, responses={201: SUBMITTED, 200: SUBMITTED},
        examples=examples.JOBS,
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Submit a job, or a list of up to 1000, all or none."""
        many = isinstance(request.data, list)
        if many and idempotency_key(request) is not None:
            raise serializers.ValidationError({"Idempotency-Key": ["For a list, give each job its own `key`."]})
        body = validate_body(JobList if many else SubmissionRequest, request.data)
        wanted = body if many else [self.add_idempotency_key(body)]
        with span_of_submission(self.trace_of_caller) as trace:
            if trace:
                wanted = [{"traceparent": trace, **job} for job in wanted]
            submitted = submission.submit_jobs(
                request_credential(request).submitter,
                wanted,
                namespace=self.namespace,
                largest=LARGE if many else None,
            )
        items = [represent(JobAnswer, job) for job in submitted_jobs(submitted, are_whole=not many)]
        status = 201 if any(job.is_new for job in submitted) else 200
        return Response({"items": items} if many else items[0], status=status)


class Placement(JobCall):
    """`GET /jobs/{id}/placement`."""

    @extend_schema(responses=PlacementAnswer)
    def get(self, request: Request, job: UUID) -> Response:
        """Who may have a waiting job, and what rules out every other server that is alive."""
        return Response(represent(PlacementAnswer, job_placement(job, self.owner)))


class Intervention(JobCall):
    """What is done to one job by hand: the job as it is then."""

    def validated_body(self, request: Request, serializer_class: type[StrictSerializer]) -> dict[str, Any]:
        body = serializer_class(data=request.data)
        body.is_valid(raise_exception=True)
        return body.validated_data

    @property
    def by(self) -> str:
        return f"{self.token.role}:{self.token.name}"

    def job_response(self, job: UUID, status: int = 200) -> Response:
        [row] = jobs_with_flags(jobs_with_attempts().filter(pk=job))
        return Response(represent(JobAnswer, row), status=status)


class Cancel(Intervention):
    """`POST /jobs/{id}/cancel`."""

    @extend_schema(request=NoteRequest, responses=JobAnswer)
    def post(self, request: Request, job: UUID) -> Response:
        """Cancel a waiting job now; ask the worker of a live one to."""
        interventions.cancel_job(job, self.by, self.owner, **self.validated_body(request, NoteRequest))
        return self.job_response(job)


class Resubmit(Intervention):
    """`POST /jobs/{id}/resubmit`."""

    @extend_schema(parameters=[KEY], request=ResubmitRequest, responses={200: JobAnswer, 201: JobAnswer})
    def post(self, request: Request, job: UUID) -> Response:
        """Take a live job from its worker (200); submit one that ended without success anew (201).

        The new one has the key of an Idempotency-Key header: the same call again answers the same job (200).
        """
        body = self.validated_body(request, ResubmitRequest)
        now, is_new = interventions.resubmit_job(job, self.by, self.owner, idempotency_key(request), **body)
        return self.job_response(now, status=201 if is_new else 200)


class Fail(Intervention):
    """`POST /jobs/{id}/fail`."""

    @extend_schema(request=FailRequest, responses=JobAnswer)
    def post(self, request: Request, job: UUID) -> Response:
        """Fail a job that waits or is live, for good."""
        interventions.fail_job(job, self.by, self.owner, **self.validated_body(request, FailRequest))
        return self.job_response(job)
