"""What was submitted, as it is stored: the content of a job, and by what it is known again."""

import hashlib
import json
from typing import Any

import orjson

from jobs import tags
from jobs.conf import conf
from jobs.selectors.submitted import DEFAULTS
from jobs.states import Unmatched

NOT_FINGERPRINTED = {"key", "require_worker", "traceparent"}
"""How a job is submitted, not what it is: no part of its fingerprint."""


def is_execution(job: dict[str, Any]) -> bool:
    """Whether it is one of steps."""
    return bool(job["action"]["type"] == "execution")


def build_job_content(job: dict[str, Any]) -> dict[str, Any]:
    """What a job is, as the statement that stores it is told: of `DEFAULTS` what the job says otherwise, for to read
    the rest takes PostgreSQL longer than to store it."""
    has_steps = is_execution(job)
    content = {
        field: value
        for field, value in job.items()
        if field in DEFAULTS and value is not None and value != DEFAULTS[field]
    }
    content["fingerprint"] = compute_fingerprint(job)
    content["action"] = job["action"]
    content["required_tags"] = tags.required_tags(job["action"], job.get("tags", []))
    content["timeout_seconds"] = None if has_steps else job.get("timeout_seconds", conf().default_timeout)
    content["on_worker_lost"] = job.get("on_worker_lost", conf().on_worker_lost)
    if has_steps:
        content["unmatched"] = Unmatched.WAIT
    if job.get("require_worker"):
        content["needs"] = required_tag_sets(job)
    return content


def required_tag_sets(job: dict[str, Any]) -> list[tuple[str, ...]]:
    """The tags that a worker must have to run a job; of an execution those of each of its steps and hooks, and of
    theirs, each set of tags once."""
    if not is_execution(job):
        return [tuple(tags.required_tags(job["action"], job.get("tags", [])))]
    return sorted({needs for step in steps_and_hooks(job["action"]) for needs in required_tag_sets(step)})


def required_runners(job: dict[str, Any]) -> set[tuple[str, ...]]:
    """The tags of the runners that a job asks for, of each step and hook of an execution; none of what is to wait for a
    worker."""
    if job.get("unmatched") == Unmatched.WAIT:
        return set()
    if is_execution(job):
        return set().union(*map(required_runners, steps_and_hooks(job["action"])))
    runner = tags.tags_of_runner(job["action"])
    return {tuple(runner)} if runner else set()


def steps_and_hooks(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps and hooks of an execution."""
    return [*definition["steps"], *definition.get("on_error", [])]


def compute_fingerprint(submitted: dict[str, Any]) -> str:
    """SHA-256 of what was submitted, in hexadecimal: whether it is the same again."""
    kept = {field: value for field, value in submitted.items() if field not in NOT_FINGERPRINTED}
    return hashlib.sha256(dump_sorted_json(kept).encode()).hexdigest()


def dump_sorted_json(data: object) -> str:
    """JSON with sorted keys."""
    try:
        return orjson.dumps(data, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # a whole number beyond 64 bits: as such PostgreSQL keeps a large float
        return json.dumps(data, sort_keys=True, default=str)
