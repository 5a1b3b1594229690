"""Forms that save and delete views of a list."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.page import require_reader
from controlplane.console.saved_views import LISTS, LONGEST_NAME, keep_view


@require_reader(methods=("POST",))
def save_view(request: HttpRequest) -> HttpResponse:
    """Save the filter of a list under a name, or delete the view of this name (`POST views/save/`)."""
    page, name = request.POST.get("page", ""), " ".join(request.POST.get("name", "").split())
    query, is_deleted = request.POST.get("query", ""), "delete" in request.POST
    if page not in LISTS:
        return redirect("instance:overview")
    answer = redirect(f"{reverse(f'instance:{page}')}{'?' if query else ''}{query}")
    if not 0 < len(name) <= LONGEST_NAME:
        messages.error(request, f"Give the view a name of at most {LONGEST_NAME} characters.")
    elif not is_deleted and not query:
        messages.error(request, "Choose a filter or an order first, so that there is something to save.")
    elif not keep_view(request, answer, page, name, "" if is_deleted else query):
        messages.error(request, "There is no room for another view. Delete one first.")
    else:
        messages.success(request, f"View {'deleted' if is_deleted else 'saved'}: {name}.")
    return answer
