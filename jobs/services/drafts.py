"""What was submitted, as it is stored: the content of a job, and by what it is known again."""

import hashlib
import json
from typing import Any

import orjson

from jobs import tags
from jobs.conf import conf
from jobs.states import RetryBackoff, Unmatched

NOT_FINGERPRINTED = {"key", "require_worker", "traceparent"}
"""How a job is submitted, not what it is: no part of its fingerprint."""
DEFAULTS: dict[str, Any] = {
    "name": "",
    "payload": None,
    "tags": [],
    "priority": 0,
    "unmatched": Unmatched.FAIL,
    "max_retries": 0,
    "retry_delay_seconds": 0,
    "retry_backoff": RetryBackoff.FIXED,
    "retry_on": None,
    "good_until": None,
    "traceparent": None,
    "available_at": None,
}
"""As `job_values` in jobs/sql/rules.sql has them."""


def is_execution(job: dict[str, Any]) -> bool:
    """Whether it is one of steps."""
    return bool(job["action"]["type"] == "execution")


def build_job_content(job: dict[str, Any]) -> dict[str, Any]:
    """What a job is, with the defaults of what it does not say."""
    has_steps = is_execution(job)
    return {
        **{field: job.get(field, default) for field, default in DEFAULTS.items()},
        "fingerprint": compute_fingerprint(job),
        "action": job["action"],
        "required_tags": tags.required_tags(job["action"], job.get("tags", [])),
        "timeout_seconds": None if has_steps else job.get("timeout_seconds", conf().default_timeout),
        "on_worker_lost": job.get("on_worker_lost", conf().on_worker_lost),
        "unmatched": Unmatched.WAIT if has_steps else job.get("unmatched", Unmatched.FAIL),
        "needs": required_tag_sets(job) if job.get("require_worker") else None,
    }


def without_defaults(content: dict[str, Any]) -> dict[str, Any]:
    """What the statement that stores it has to be told: to read the rest takes PostgreSQL longer than to store it."""
    return {field: value for field, value in content.items() if value is not None and value != DEFAULTS.get(field)}


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
