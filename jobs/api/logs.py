"""`GET /jobs/{id}/logs`: what a job's code wrote."""

from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.json_bodies import JSONLinesRenderer, JSONRenderer
from controlplane.core.paging import within_limit
from controlplane.core.rest import (
    ChoiceField,
    StrictSerializer,
    TimeField,
)
from jobs.api.views import JobCall
from jobs.errors import JobUnknown
from jobs.models import LogLine
from jobs.selectors.jobs import jobs_visible_to
from jobs.selectors.logs import job_log_page

PAGE_LIMIT = 1000


class LogFilter(StrictSerializer):
    """Which lines, and which page of them."""

    attempt = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="Number of the attempt."
    )
    cursor = serializers.IntegerField(
        default=0, min_value=0, max_value=2**63 - 1, help_text="`next` of the previous page."
    )
    limit = serializers.IntegerField(default=PAGE_LIMIT, min_value=1, max_value=PAGE_LIMIT)


class LogItem(serializers.Serializer):
    at = TimeField()
    attempt = serializers.IntegerField(help_text="Number of the attempt.")
    stream = ChoiceField(LogLine.Stream.values)
    line = serializers.CharField()


class LogPage(serializers.Serializer):
    items = LogItem(many=True, help_text="Oldest first.")
    next = serializers.CharField(allow_null=True)
    last = serializers.CharField(help_text="The cursor behind the last item: use it to read what is written later.")


class JobLogs(JobCall):
    """`GET /jobs/{id}/logs`."""

    renderer_classes = [JSONRenderer, JSONLinesRenderer]

    @extend_schema(parameters=[LogFilter], responses=LogPage)
    def get(self, request: Request, job: UUID) -> Response:
        """What a job's code wrote, oldest first; with `Accept: application/x-ndjson` a line of JSON for each line."""
        query = LogFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        if not jobs_visible_to(self.owner).filter(pk=job).exists():
            raise JobUnknown
        filters = query.validated_data
        rows = job_log_page(job, filters["cursor"], filters["limit"] + 1, filters.get("attempt"))
        page = rows[: filters["limit"]]
        items = within_limit(
            {"at": row.at, "attempt": row.attempt, "stream": row.stream, "line": row.line} for row in page
        )
        last = str(rows[len(items) - 1].id if items else filters["cursor"])
        cursor = last if len(rows) > len(items) else None
        return Response({"items": items, "next": cursor, "last": last}, headers=self.next_page_header(request, cursor))

    @staticmethod
    def next_page_header(request: Request, cursor: str | None) -> dict[str, str]:
        """The `Link` header to the page after this one."""
        if cursor is None:
            return {}
        query = request.query_params.copy()
        query["cursor"] = cursor
        return {"Link": f'<{request.path}?{query.urlencode()}>; rel="next"'}
