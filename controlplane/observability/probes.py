"""For load balancers, Kubernetes and whoever watches: is this process there, is it fit, and is the instance?"""

from collections.abc import Callable, Iterator

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from controlplane.core.database import ALIAS, MIGRATE, connection, count_missing_migrations
from liveness.conf import conf
from liveness.selectors.clock import clock_ages, is_check_late


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """This process is fit for work, or a 503 with what is wrong. What other processes do makes it no less fit: a load
    balancer that took all web processes out would take the heartbeats with them."""
    return build_probe_response(collect_problems(process_problems))


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The whole instance does its work, or a 503 with what is wrong."""
    return build_probe_response(collect_problems(process_problems, instance_problems))


def build_probe_response(wrong: list[str]) -> HttpResponse:
    return JsonResponse({"status": "unready" if wrong else "ok", "problems": wrong}, status=503 if wrong else 200)


def collect_problems(*probes: Callable[[], Iterator[str]]) -> list[str]:
    try:
        return [wrong for probe in probes for wrong in probe()]
    except DatabaseError as error:
        return [f"The database {ALIAS!r} cannot be reached: {str(error).splitlines()[0]}"]


def process_problems() -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("show transaction_read_only")
        if cursor.fetchone()[0] == "on":
            yield "The database is read-only."
    if missing := count_missing_migrations():
        yield f"{missing} migrations are not applied: run `manage.py {MIGRATE}`."


def instance_problems() -> Iterator[str]:
    interval, beats = conf().interval, conf().heartbeat_interval
    check, standstill = clock_ages()
    if check is None:
        yield "No liveness check has run yet: is an executor with beat running?"
    elif is_check_late(check):
        yield f"The last liveness check was {check:.0f} s ago; one is due every {interval:g} s."
    if abs(standstill) > 3 * max(interval, 2 * beats):
        yield f"Observed time has stood still for {standstill:.0f} s: heartbeats do not get in, or no check runs."
