"""Converts a submitted job to the content that is stored, and computes its fingerprint."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from controlplane.core.json_bodies import write_json
from jobs import tags
from jobs.choices import HookOf, Unmatched
from jobs.conf import conf
from jobs.selectors.submitted import DEFAULTS

REFERABLE = ("seconds", "until", "signal", "message")
"""Fields of the actions of steps that wait whose values may be references."""
NOT_FINGERPRINTED = {"key", "require_worker", "traceparent", "unique"}
"""Fields that belong to the submission, not to the job, so they are not part of the fingerprint."""


def is_execution(job: dict[str, Any]) -> bool:
    """Return True if the job is an execution with steps."""
    return bool(job["action"]["type"] == "execution")


def is_waiting(job: Mapping[str, Any]) -> bool:
    """Return True if the job is a step that waits without a worker."""
    return job["action"]["type"] in tags.WAITING_TYPES


def is_loop(step: Mapping[str, Any]) -> bool:
    """Return True if the step runs for each item of a list."""
    return step.get("for_each") is not None


def own_payload(step: Mapping[str, Any], inputs: Any) -> Any:
    """Return the payload of a step, by default the inputs of its execution.

    For a step that waits it holds the fields of the action that may be references, so that they are resolved.
    """
    if is_waiting(step):
        return {name: value for name, value in step["action"].items() if name in REFERABLE}
    return step.get("payload", inputs)


def build_job_content(job: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a job for the statement that stores it, without values that equal `DEFAULTS`.

    PostgreSQL needs more time to read these values than to store the job.
    """
    needs_worker = job["action"]["type"] not in tags.TYPES_WITHOUT_WORKER
    content = {
        field: value
        for field, value in job.items()
        if field in DEFAULTS and value is not None and value != DEFAULTS[field]
    }
    content["fingerprint"] = compute_fingerprint(job)
    content["action"] = job["action"]
    content["required_tags"] = tags.required_tags(job["action"], job.get("tags", []))
    content["timeout_seconds"] = job.get("timeout_seconds", conf().default_timeout) if needs_worker else None
    content["on_worker_lost"] = str(job.get("on_worker_lost", conf().on_worker_lost))
    if not needs_worker:
        content["unmatched"] = Unmatched.WAIT
    if "unique" in job:
        content["unique_key"] = job["unique"]["key"]
    if job.get("require_worker"):
        content["needs"] = required_tag_sets(job)
    return content


def required_tag_sets(job: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the sets of tags that workers must have for a job; for an execution those of all steps and hooks."""
    if is_waiting(job):
        return []
    if not is_execution(job):
        return [tuple(tags.required_tags(job["action"], job.get("tags", [])))]
    return sorted({needs for step in steps_and_hooks(job["action"]) for needs in required_tag_sets(step)})


def jobs_within(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a job with its `required_tags`, or the steps and hooks of an execution and of the executions in it.

    An execution with limits is yielded too, with its keys alone.
    """
    if is_execution(job):
        if limits := job["action"].get("limits"):
            yield {"action": {}, "required_tags": [], "limits": limits}
        for step in steps_and_hooks(job["action"]):
            yield from jobs_within(step)
    else:
        yield {**job, "required_tags": tags.required_tags(job["action"], job.get("tags", []))}


def required_runners(job: dict[str, Any]) -> set[tuple[str, ...]]:
    """Return the tags of the runners that a job, or each step and hook of an execution, asks for.

    Empty for a job that waits for a worker.
    """
    if job.get("unmatched") == Unmatched.WAIT:
        return set()
    if is_execution(job):
        return set().union(*map(required_runners, steps_and_hooks(job["action"])))
    runner = tags.tags_of_runner(job["action"])
    return {tuple(runner)} if runner else set()


def steps_and_hooks(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps and hooks of an execution."""
    return [*definition["steps"], *hooks_of(definition)]


def hooks_of(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the hooks of an execution."""
    return [hook for name in HookOf for hook in definition.get(name, [])]


def compute_fingerprint(submitted: dict[str, Any]) -> str:
    """Return the SHA-256 of a submission, in hexadecimal. Equal submissions have equal fingerprints."""
    kept = {field: value for field, value in submitted.items() if field not in NOT_FINGERPRINTED}
    return hashlib.sha256(dump_sorted_json(kept).encode()).hexdigest()


def dump_sorted_json(data: object) -> str:
    """Return JSON with sorted keys."""
    return write_json(data, orjson.OPT_SORT_KEYS).decode()
