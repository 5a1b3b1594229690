"""`GET /jobs/{id}/logs`: log lines of a job's code."""

from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.long_polls import WaitField, is_asked_again, mark_not_yet, not_yet
from controlplane.core.media_types import JSONLinesRenderer, JSONRenderer
from controlplane.core.paging import within_limit
from controlplane.core.rest import (
    ChoiceField,
    StrictSerializer,
    TimeField,
)
from jobs.api.jobs import JobCall
from jobs.api.serializers.execution_answers import EventPage
from jobs.errors import JobUnknown
from jobs.models import LogLine
from jobs.selectors.jobs import jobs_visible_to
from jobs.selectors.logs import has_log_ended, job_log_page, job_server_lines
from jobs.services.followed_jobs import FollowedJob, write_followed

PAGE_LIMIT = 1000


class LogFilter(StrictSerializer):
    """Filter of log lines, and page."""

    attempt = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="Number of the attempt."
    )
    cursor = serializers.IntegerField(
        default=0, min_value=0, max_value=2**63 - 1, help_text="`next` of the previous page."
    )
    limit = serializers.IntegerField(default=PAGE_LIMIT, min_value=1, max_value=PAGE_LIMIT)
    wait = WaitField(help_text="Respond when a line follows `cursor`, when none can follow, or after so many seconds.")


class ServerLogFilter(LogFilter):
    """Page of the control plane's own lines."""

    attempt: Any = None
    wait: Any = None


class LogItem(serializers.Serializer):
    at = TimeField()
    attempt = serializers.IntegerField(help_text="Number of the attempt.")
    stream = ChoiceField(LogLine.Stream.values)
    line = serializers.CharField()


class LogPage(serializers.Serializer):
    items = LogItem(many=True, help_text="Oldest first.")
    next = serializers.CharField(allow_null=True)
    last = serializers.CharField(help_text="Cursor after the last item; use it to read later lines.")
    complete = serializers.BooleanField(help_text="The job (with `attempt`, this attempt) has ended: no line follows.")


class JobLogsView(JobCall):
    """`GET /jobs/{id}/logs`."""

    renderer_classes = [JSONRenderer, JSONLinesRenderer]

    @extend_schema(parameters=[LogFilter], responses=LogPage)
    def get(self, request: Request, job: UUID) -> Response:
        """Return the log lines of a job's code, oldest first. With `Accept: application/x-ndjson` as lines of JSON.

        With `wait`, wait for a line after `cursor`, or until the job has ended. Follow a log by passing `last` as the
        next `cursor` until `complete` is true and `next` is null.
        """
        query = LogFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        filters = query.validated_data
        after, attempt, wait = filters["cursor"], filters.get("attempt"), filters["wait"]
        # Read the state before the lines: then the lines of an ended job are complete.
        ended = has_log_ended(jobs_visible_to(self.owner), job, attempt)
        if ended is None:
            raise JobUnknown
        if is_asked_again(request) and wait and not ended and not job_log_page(job, after, 1, attempt):
            return not_yet(wait)
        rows = job_log_page(job, after, filters["limit"] + 1, attempt)
        page = rows[: filters["limit"]]
        items = within_limit(
            {"at": row.at, "attempt": row.attempt, "stream": row.stream, "line": row.line} for row in page
        )
        last = str(rows[len(items) - 1].id if items else after)
        cursor = last if len(rows) > len(items) else None
        answer = {"items": items, "next": cursor, "last": last, "complete": ended and cursor is None}
        response = Response(answer, headers=self.next_page_header(request, cursor))
        followed = write_followed([FollowedJob(job, after, attempt)])
        return response if items or ended else mark_not_yet(response, wait, followed)

    @staticmethod
    def next_page_header(request: Request, cursor: str | None) -> dict[str, str]:
        """Return the `Link` header with the next page."""
        if cursor is None:
            return {}
        query = request.query_params.copy()
        query["cursor"] = cursor
        return {"Link": f'<{request.path}?{query.urlencode()}>; rel="next"'}


class JobServerLogsView(JobCall):
    """`GET /jobs/{id}/steps/_server/logs`."""

    renderer_classes = [JSONRenderer, JSONLinesRenderer]

    @extend_schema(parameters=[ServerLogFilter], responses=EventPage)
    def get(self, request: Request, job: UUID) -> Response:
        """Return the actions of the control plane itself on a job, oldest first."""
        query = ServerLogFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        if not jobs_visible_to(self.owner).filter(pk=job).exists():
            raise JobUnknown
        after, limit = query.validated_data["cursor"], query.validated_data["limit"]
        rows = job_server_lines(job, after, limit + 1)
        page = rows[:limit]
        items = [
            {"at": row.at, "code": row.code, "step": row.step, "server": row.server, "line": row.line} for row in page
        ]
        last = str(page[-1].place if page else after)
        cursor = last if len(rows) > len(page) else None
        answer = {"items": items, "next": cursor, "last": last}
        return Response(answer, headers=JobLogsView.next_page_header(request, cursor))
