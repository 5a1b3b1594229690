"""For load balancers and Kubernetes: is this process there, and is it fit for work?"""

from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from liveness import selectors
from liveness.conf import conf


def livez(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> HttpResponse:
    """Fit for work, or a 503 with what is wrong."""
    wrong = problems()
    return JsonResponse({"status": "unready" if wrong else "ok", "problems": wrong}, status=503 if wrong else 200)


def problems() -> list[str]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("show transaction_read_only")
            if cursor.fetchone()[0] == "on":
                return ["The database is read-only."]
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if missing:
            return [f"{len(missing)} migrations are not applied: run `manage.py migrate`."]
        age = selectors.seconds_since_check()
    except DatabaseError as error:
        return [f"The database {DEFAULT_DB_ALIAS!r} cannot be reached: {str(error).splitlines()[0]}"]
    if age is None:
        return ["No liveness check has run yet: is an executor with beat running?"]
    if age > 3 * conf().interval:
        return [f"The last liveness check was {age:.0f} s ago; one is due every {conf().interval:g} s."]
    return []
