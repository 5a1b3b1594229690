"""Base class of our admins: it accepts only the lookups that its own forms offer."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.exceptions import BadRequest, ValidationError
from django.db import DataError
from django.db.models import DateTimeField, QuerySet
from django.http import HttpRequest, HttpResponse

LONGEST_SEARCH = 200
"""Largest number of characters in a search, as in the filters of the Instance pages."""


class OfferedLookups(admin.ModelAdmin):
    """ModelAdmin that allows only lookups of its list filters, and returns 400 for any other lookup.

    Django allows lookups on any column, so a user could find a masked or excluded value letter by letter. All our
    admins derive from this class. A test checks every field of their models.
    """

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Return True only for the parameters that a click on a list filter sends."""
        return lookup in self.offered_lookups(request)

    def offered_lookups(self, request: HttpRequest | None) -> Iterator[str]:
        """Yield the parameters of the list filters. `list_filter` must contain only names of fields."""
        offered: Any = self.list_filter if request is None else self.get_list_filter(request)
        for path in offered:
            field: Any = get_fields_from_path(self.model, path)[-1]
            key = f"{path}__{field.target_field.name}" if field.is_relation else path
            yield from (path, f"{key}__exact", f"{path}__isnull")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search a list or the suggestions in a form. Raise BadRequest for a text that cannot be searched."""
        if "\0" in search_term or len(search_term) > LONGEST_SEARCH:
            raise BadRequest(f"A search text must have at most {LONGEST_SEARCH} characters and no NUL character.")
        return super().get_search_results(request, queryset, search_term)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return initial values from the address, but no dates, because the widget of Django fails on a text."""
        times = {field.name for field in self.opts.fields if isinstance(field, DateTimeField)}
        given = super().get_changeform_initial_data(request)
        return {name: value for name, value in given.items() if name not in times}

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Build the list. Raise BadRequest for an invalid filter value.

        For a page out of range, show the first page.
        """
        try:
            return super().get_changelist_instance(request)
        except IncorrectLookupParameters as wrong:
            if PAGE_VAR in request.GET:
                raise
            raise BadRequest("A filter in this address has an invalid value.") from wrong

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list or begin an action. Raise BadRequest for invalid ids and texts."""
        try:
            for text in request.POST.getlist(ACTION_CHECKBOX_NAME):
                self.opts.pk.to_python(text)
            return super().changelist_view(request, extra_context)
        except (ValidationError, DataError) as wrong:
            raise BadRequest("This request has an invalid id, or a text that cannot be searched.") from wrong
