"""Submit jobs and send signals from the code of a Django project that has the control plane among its apps.

The jobs exist if and only if the caller's transaction commits:

    from jobs.in_process import submit

    with transaction.atomic():
        order.save()
        job = submit({"type": "callable", "path": "shop.mail:confirm"}, payload={"order": order.pk})

The transaction must be of the control plane's database: `default`, unless CONTROLPLANE_DATABASE names another.
`WorkerJob.objects.get(pk=job)` finds the job. With `namespace="red"` it belongs to the namespace red.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from rest_framework.serializers import ValidationError

from controlplane.agent.limits import BODY_LIMIT
from controlplane.agent.tracing import span_of_submission
from controlplane.core.rest import validate_body
from jobs.api.serializers.executions import SubmissionRequest
from jobs.api.serializers.signals import SignalRequest
from jobs.services import drafts, signals, unique_jobs
from liveness.api.access import NamespaceQuery
from liveness.models import DEFAULT_NAMESPACE
from liveness.services import tokens


def submit(
    action: Mapping[str, Any], payload: Any = None, *, namespace: str = DEFAULT_NAMESPACE, **options: Any
) -> UUID:
    """Submit a job in the caller's transaction and return its id.

    `options` are the fields of `POST /jobs`: tags, priority, timeout_seconds, available_at, good_until, max_retries,
    key, unique, limits and so on. Only workers of the namespace get the job. The same `key` again returns the same
    job. All jobs of the project's code have one owner, without a limit of waiting jobs.

    Raise rest_framework's ValidationError if the API would respond with 400; its `detail` names the field. Raise a
    Problem with `code` and `detail` if the API would refuse the job otherwise.
    """
    fields = {"action": action, **({} if payload is None else {"payload": payload}), **options}
    [job] = submit_many([fields], namespace=namespace)
    return job


def submit_many(jobs: Iterable[Mapping[str, Any]], *, namespace: str = DEFAULT_NAMESPACE) -> list[UUID]:
    """Submit all or none of these jobs, and return their ids in the same order.

    Each job has the fields of `POST /jobs`. Errors are those of `submit`.
    """
    NamespaceQuery.read(namespace)
    wanted = []
    for job in jobs:
        wanted.append(validate_body(SubmissionRequest, dict(job)))
        refuse_oversized(wanted[-1])
    owner = tokens.get_project_token()
    with span_of_submission() as trace:
        wanted = [{"traceparent": trace, **job} for job in wanted]
        submitted = unique_jobs.submit_jobs(owner, wanted, namespace=namespace, is_limited=False)
    return [job.id for job in submitted]


def send_signal(name: str, body: Any = None, *, key: str | None = None, namespace: str = DEFAULT_NAMESPACE) -> UUID:
    """Send a signal in the caller's transaction and return its id. Steps that wait for it get it after the commit.

    The same `key` again returns the same signal. Errors are those of `submit`.
    """
    NamespaceQuery.read(namespace)
    validate_body(SignalRequest, {"name": name})
    sent, _ = signals.send_signal(tokens.get_project_token(), name, body, key=key, namespace=namespace)
    return sent.id


def refuse_oversized(job: Mapping[str, Any]) -> None:
    """Raise ValidationError if a job is larger than the body of a call, because no worker could claim it then."""
    if (size := len(drafts.dump_sorted_json(job).encode())) > BODY_LIMIT:
        raise ValidationError({"payload": [f"The job has {size} bytes of JSON, but may have at most {BODY_LIMIT}."]})
