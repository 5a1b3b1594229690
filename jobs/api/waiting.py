"""Calls that wait for the end of a job."""

from collections.abc import Iterable
from uuid import UUID

from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.long_polls import WaitField, is_asked_again, mark_not_yet, not_yet
from controlplane.core.paging import within_limit
from controlplane.core.rest import IdField, StrictSerializer, validate_body
from jobs.api import examples
from jobs.api.jobs import Intervention, JobCall
from jobs.api.serializers.changes import ChangeRequest
from jobs.api.serializers.jobs import JobAnswer
from jobs.models import WorkerJob
from jobs.selectors.contents import without_large
from jobs.selectors.jobs import jobs_visible_to, jobs_with_flags
from jobs.services import changes
from jobs.services.followed_jobs import FollowedJob, write_followed
from jobs.states import TERMINAL

JOBS_LIMIT = 100


class JobQuery(StrictSerializer):
    wait = WaitField()


class JobsWaitQuery(StrictSerializer):
    id = serializers.ListField(
        child=IdField(), min_length=1, max_length=JOBS_LIMIT, help_text="Repeat it for each job."
    )
    wait = WaitField(help_text="Respond when one of them has ended, or after so many seconds.")


class EndedJobs(serializers.Serializer):
    items = JobAnswer(many=True, help_text="Ended jobs. Large contents are left out, as in a list.")
    unknown = serializers.ListField(
        child=serializers.UUIDField(), help_text="Ids of jobs that do not exist or are not yours."
    )


class JobView(Intervention):
    """`GET` and `PATCH /jobs/{id}`."""

    @extend_schema(parameters=[JobQuery], responses=JobAnswer)
    def get(self, request: Request, job: UUID) -> Response:
        """Return a job with its attempts, timeline and superseded reports. With `wait`, wait for its end."""
        query = JobQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        wait = query.validated_data["wait"]
        if is_asked_again(request) and wait and not has_ended([job]):
            return not_yet(wait)
        rows = jobs_with_flags(jobs_visible_to(self.owner).filter(pk=job))
        if not rows:
            raise Http404("The job does not exist or is not yours.")
        response = Response(represent(JobAnswer, rows[0]))
        followed = write_followed([FollowedJob(job)])
        return response if rows[0].state in TERMINAL else mark_not_yet(response, wait, followed)

    @extend_schema(request=ChangeRequest, responses=JobAnswer, examples=[examples.CHANGE])
    def patch(self, request: Request, job: UUID) -> Response:
        """Change some fields of a job that waits. A job that has started is refused with `already_started`."""
        body = validate_body(ChangeRequest, request.data)
        note = body.pop("note")
        changes.change_job(job, self.by, self.owner, changes=body, note=note)
        return self.job_response(job)


class JobsWaitView(JobCall):
    """`GET /jobs/wait`."""

    @extend_schema(parameters=[JobsWaitQuery], responses=EndedJobs)
    def get(self, request: Request) -> Response:
        """Return those of up to 100 jobs that have ended. With `wait`, wait for the first of them."""
        query = JobsWaitQuery(data={**request.query_params.dict(), "id": request.query_params.getlist("id")})
        query.is_valid(raise_exception=True)
        ids, wait = query.validated_data["id"], query.validated_data["wait"]
        if is_asked_again(request) and wait and not has_ended(ids):
            return not_yet(wait)
        visible = self.within_namespaces(jobs_visible_to(self.owner)).filter(pk__in=ids)
        known = set(visible.values_list("pk", flat=True))
        rows = jobs_with_flags(without_large(visible.filter(state__in=TERMINAL)).order_by("pk"))
        items = within_limit(represent(JobAnswer, row) for row in rows)
        response = Response({"items": items, "unknown": [id for id in ids if id not in known]})
        followed = write_followed([FollowedJob(id) for id in ids])
        return response if items or known != set(ids) else mark_not_yet(response, wait, followed)


def has_ended(jobs: Iterable[UUID]) -> bool:
    return WorkerJob.objects.filter(pk__in=jobs, state__in=TERMINAL).exists()
