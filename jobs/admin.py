"""The tables as they are, to read only. Docs: liveness/admin.py."""

from typing import ClassVar

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.models import Attempt, WorkerJob
from liveness.admin import ReadOnly


@admin.register(WorkerJob)
class WorkerJobAdmin(ReadOnly):
    list_display = ("id", "state", "kind", "attempt_count", "resubmissions", "created_at", "finished_at", "page")
    list_filter = ("state", "kind")
    search_fields = ("id", "key")
    ordering: ClassVar = ["-id"]
    exclude = ("owner",)

    @admin.display(description="Instance page")
    def page(self, job: WorkerJob) -> SafeString:
        return format_html('<a href="{}">Show</a>', reverse("instance:job", args=[job.pk]))


@admin.register(Attempt)
class AttemptAdmin(ReadOnly):
    list_display = ("id", "job_id", "number", "server", "state", "claimed_at", "started_at", "finished_at", "reason")
    list_filter = ("state",)
    list_select_related = ("server",)
    search_fields = ("id", "job__id")
    ordering: ClassVar = ["-id"]
