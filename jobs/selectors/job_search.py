"""Search of jobs by a text."""

from typing import Any

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from controlplane.core.ids import ID_PART, id_condition


def jobs_with_text(rows: QuerySet[Any], word: str) -> QuerySet[Any]:
    """Return the jobs whose name, action or error contains this text, or whose key or id is this text.

    The beginning or the last digits of an id are enough. No index supports this search, so limit the rows before.
    """
    code = Q(action__command__icontains=word) | Q(action__path__icontains=word) | Q(action__task__icontains=word)
    error = Q(error__code__icontains=word) | Q(error__message__icontains=word)
    matches = code | error | Q(action__name__icontains=word) | Q(name__icontains=word) | Q(key=word)
    if ID_PART.fullmatch(word):
        rows = rows.alias(id_text=Cast("pk", TextField()))
        matches |= Q(id_text__endswith=word.lower())
    return rows.filter(matches | id_condition(word))
