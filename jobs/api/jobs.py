"""API calls of clients and operators about jobs."""

import re
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.agent.tracing import span_of_submission
from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from controlplane.core.rest import validate_body
from jobs.api import examples
from jobs.api.idempotency import KEY, idempotency_key
from jobs.api.serializers.executions import SUBMISSION, JobList, SubmissionRequest
from jobs.api.serializers.job_filter import JobFilter
from jobs.api.serializers.jobs import (
    SUBMITTED,
    TRACEPARENT,
    FailRequest,
    JobAnswer,
    JobPage,
    NoteRequest,
    ResubmitRequest,
    SubmittedAnswer,
)
from jobs.api.serializers.placements import PlacementAnswer
from jobs.selectors.contents import LARGE, without_large
from jobs.selectors.jobs import jobs_visible_to, jobs_with_attempts, jobs_with_flags
from jobs.selectors.placement import job_placement
from jobs.selectors.submitted import submitted_jobs
from jobs.services import interventions, unique_jobs
from liveness.api.access import NamespaceQuery, RoleCall, request_credential
from liveness.models import Role

TRACE = OpenApiParameter(
    "traceparent",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="Trace in which a job is submitted (W3C). Its code gets it as TRACEPARENT.",
)


def describe_submitted(job: Any) -> Any:
    """Return the response about a job that was just submitted."""
    return represent(SubmittedAnswer, job)


def read_traceparent(header: str) -> str | None:
    """Return the traceparent header, or None for an invalid one, as the standard demands."""
    return header if re.match(TRACEPARENT, header) else None


class JobCall(RoleCall):
    """Call about jobs. Clients access their own jobs, and operators access all jobs. Viewers may only read jobs."""

    roles = {
        "GET": {Role.CLIENT, Role.VIEWER, Role.OPERATOR},
        "POST": {Role.CLIENT, Role.OPERATOR},
        "PATCH": {Role.CLIENT, Role.OPERATOR},
    }

    @property
    def owner(self) -> UUID | None:
        """Return the token whose jobs the caller may access; None means all jobs."""
        return self.token.pk if self.token.role == Role.CLIENT else None

    @property
    def trace_of_caller(self) -> str | None:
        """Return the traceparent header, or None."""
        return read_traceparent(self.request.headers.get("traceparent", ""))

    def add_idempotency_key(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields, with the key of the header if the body has none. Raise ValidationError if they differ."""
        header = idempotency_key(self.request)
        if header is not None and fields.setdefault("key", header) != header:
            raise serializers.ValidationError({"key": ["The Idempotency-Key header has another key. Send only one."]})
        return fields


class JobsView(JobCall):
    """`GET` and `POST /jobs`."""

    @extend_schema(operation_id="v1_jobs_list", parameters=[JobFilter], responses=JobPage)
    def get(self, request: Request) -> Response:
        """Return jobs, latest first, in pages. A client gets only its own jobs."""
        query = JobFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        visible = self.within_namespaces(jobs_visible_to(self.owner))
        return Response(paged(JobPage, query.page(without_large(visible))))

    @extend_schema(
        parameters=[KEY, TRACE, NamespaceQuery], request=SUBMISSION, responses={201: SUBMITTED, 200: SUBMITTED},
        examples=examples.JOBS,
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Submit a job, or all or none of a list of up to 1000 jobs."""
        many = isinstance(request.data, list)
        if many and idempotency_key(request) is not None:
            raise serializers.ValidationError({"Idempotency-Key": ["In a list, give each job its own `key` instead."]})
        body = validate_body(JobList if many else SubmissionRequest, request.data)
        wanted = body if many else [self.add_idempotency_key(body)]
        with span_of_submission(self.trace_of_caller) as trace:
            if trace:
                wanted = [{"traceparent": trace, **job} for job in wanted]
            submitted = unique_jobs.submit_jobs(
                request_credential(request).submitter,
                wanted,
                namespace=self.namespace,
                largest=LARGE if many else None,
            )
        items = [describe_submitted(job) for job in submitted_jobs(submitted, are_whole=not many)]
        status = 201 if any(job.is_new for job in submitted) else 200
        return Response({"items": items} if many else items[0], status=status)


class PlacementView(JobCall):
    """`GET /jobs/{id}/placement`."""

    @extend_schema(responses=PlacementAnswer)
    def get(self, request: Request, job: UUID) -> Response:
        """Return the servers that may get a waiting job, and the filter that excludes each other alive server."""
        return Response(represent(PlacementAnswer, job_placement(job, self.owner)))


class Intervention(JobCall):
    """Action on one job by hand. The response is the job after the action."""

    @property
    def by(self) -> str:
        return f"{self.token.role}:{self.token.name}"

    def job_response(self, job: UUID, status: int = 200) -> Response:
        [row] = jobs_with_flags(jobs_with_attempts().filter(pk=job))
        return Response(represent(JobAnswer, row), status=status)


class CancelJobView(Intervention):
    """`POST /jobs/{id}/cancel`."""

    @extend_schema(request=NoteRequest, responses=JobAnswer)
    def post(self, request: Request, job: UUID) -> Response:
        """Cancel a job. A waiting job ends now. The worker of a live job is asked to cancel it."""
        interventions.cancel_job(job, self.by, self.owner, **validate_body(NoteRequest, request.data))
        return self.job_response(job)


class ResubmitJobView(Intervention):
    """`POST /jobs/{id}/resubmit`."""

    @extend_schema(parameters=[KEY], request=ResubmitRequest, responses={200: JobAnswer, 201: JobAnswer})
    def post(self, request: Request, job: UUID) -> Response:
        """Take a live job from its worker (200), or submit a job that ended without success again, as a new job (201).

        The new job gets the key of the Idempotency-Key header. A repeated call returns the same job (200).
        """
        body = validate_body(ResubmitRequest, request.data)
        now, is_new = interventions.resubmit_job(job, self.by, self.owner, idempotency_key(request), **body)
        return self.job_response(now, status=201 if is_new else 200)


class FailJobView(Intervention):
    """`POST /jobs/{id}/fail`."""

    @extend_schema(request=FailRequest, responses=JobAnswer)
    def post(self, request: Request, job: UUID) -> Response:
        """Fail a waiting or live job. It is not retried."""
        interventions.fail_job(job, self.by, self.owner, **validate_body(FailRequest, request.data))
        return self.job_response(job)
