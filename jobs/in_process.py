"""For the code of a Django project that has the control plane among its apps: jobs that exist if and only if the
transaction commits in which they are submitted.

    from jobs.in_process import submit

    with transaction.atomic():
        order.save()
        job = submit({"type": "callable", "path": "shop.mail:confirm"}, payload={"order": order.pk})

The transaction is of the database of the control plane: `default`, unless CONTROLPLANE_DATABASE names another. The id
finds the job again: `WorkerJob.objects.get(pk=job)`. With `namespace="red"` it is one of the namespace red.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from rest_framework.serializers import ValidationError

from controlplane.agent.limits import BODY_LIMIT
from controlplane.agent.tracing import span_of_submission
from controlplane.core.rest import validate_body
from jobs.api.serializers.executions import SubmissionRequest
from jobs.services import drafts, submission
from liveness.api.access import NamespaceQuery
from liveness.models import DEFAULT_NAMESPACE
from liveness.services import tokens


def submit(
    action: Mapping[str, Any], payload: Any = None, *, namespace: str = DEFAULT_NAMESPACE, **options: Any
) -> UUID:
    """A job, in the transaction of its caller; its id. `options` are the fields of `POST /jobs`: tags, priority,
    timeout_seconds, available_at, good_until, max_retries, key and so on. Workers of this namespace alone get it.

    The same key again is the same job. What the project itself submits has one owner, and no limit of how many wait.
    Raises rest_framework's ValidationError for what the API would refuse with 400, whose `detail` says where, and a
    Problem, with `code` and `detail`, for what it would refuse otherwise.
    """
    fields = {"action": action, **({} if payload is None else {"payload": payload}), **options}
    [job] = submit_many([fields], namespace=namespace)
    return job


def submit_many(jobs: Iterable[Mapping[str, Any]], *, namespace: str = DEFAULT_NAMESPACE) -> list[UUID]:
    """All or none of these jobs, each with the fields of `POST /jobs`; their ids, in order. See `submit`."""
    NamespaceQuery.read(namespace)
    wanted = []
    for job in jobs:
        wanted.append(validate_body(SubmissionRequest, dict(job)))
        refuse_oversized(wanted[-1])
    owner = tokens.get_project_token()
    with span_of_submission() as trace:
        wanted = [{"traceparent": trace, **job} for job in wanted]
        submitted = submission.submit_jobs(owner, wanted, namespace=namespace, is_limited=False)
    return [job.id for job in submitted]


def refuse_oversized(job: Mapping[str, Any]) -> None:
    """Raises ValidationError for what would be too large for the body of a call, and so for a worker's claim."""
    if (size := len(drafts.dump_sorted_json(job).encode())) > BODY_LIMIT:
        raise ValidationError({"payload": [f"The job has {size} bytes of JSON; at most {BODY_LIMIT}."]})
