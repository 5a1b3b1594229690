"""Tabs of a job: its output, its input, its errors, and the whole job as JSON."""

import json
from decimal import Decimal
from typing import Any

from controlplane.agent.secrets.step_data import mask_payload
from controlplane.agent.secrets.values import mask
from controlplane.console.presenters.origins import present_origins
from jobs.selectors.jobs import DetailedJob

TEXT_SHOWN = 10_000
LINES_SHOWN = 200
SHOWN_FIELDS = ("code", "message", "exception", "traceback")


TABS = ("Logs", "Output", "Input", "Errors", "Events", "JSON")


def present_contents(job: DetailedJob) -> dict[str, Any]:
    """Return the texts of the tabs: outputs, inputs, more fields of the error, and the whole job as JSON."""
    return {
        "outputs": present_texts(("Output", job.output), ("Checkpoint", job.checkpoint)),
        "inputs": present_texts(("Payload", mask_payload(job.payload, job.payload_from)), ("Action", mask(job.action))),
        "origins": present_origins(job),
        "error_texts": present_texts(("Error", leave_out_shown_fields(job.error))),
        "as_json": present_texts(("JSON", describe_as_json(job))),
    }


def present_texts(*texts: tuple[str, Any]) -> list[tuple[str, str, int]]:
    """Return each value that is not None as text, with its name and the number of characters left out."""
    return [(name, format_json(value), count_left_out(value)) for name, value in texts if value is not None]


def present_content_tabs(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tabs of the page. A count is empty if it is zero."""
    counts = {"Logs": len(shown["lines"]), "Errors": len(shown["errors"]), "Events": len(shown["timeline"])}
    return [
        {
            "name": label.lower(),
            "label": label,
            "count": f"{LINES_SHOWN}+" if counts.get(label) == LINES_SHOWN else counts.get(label) or "",
            "template": f"admin/instance/_job_{label.lower()}.html",
        }
        for label in TABS
    ]


JSON_FIELDS = (
    "name", "namespace", "kind", "state", "key", "required_tags", "priority", "timeout_seconds", "on_worker_lost",
    "resubmissions", "retries", "created_at", "available_at", "good_until", "deadline_at", "cancel_requested_at",
    "finished_at", "worker_slots", "step", "output", "error", "checkpoint",
)  # fmt: skip
ATTEMPT_FIELDS = ("number", "state", "claimed_at", "started_at", "finished_at", "reason", "ended_by")


def describe_as_json(job: DetailedJob) -> dict[str, Any]:
    """Return the job with its attempts, as `GET /jobs/{id}` does. Secrets are masked."""
    attempts = [
        {
            **{name: getattr(attempt, name) for name in ATTEMPT_FIELDS},
            # Other fields of an error may describe the server. Not every reader may view servers.
            "error": attempt.error and {name: attempt.error.get(name) for name in SHOWN_FIELDS},
            "server": attempt.server.name,
        }
        for attempt in job.attempts.all()
    ]
    content = {"action": mask(job.action), "payload": mask_payload(job.payload, job.payload_from)}
    return {"id": job.pk, **{name: getattr(job, name) for name in JSON_FIELDS}, **content, "attempts": attempts}


def leave_out_shown_fields(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields of an error that the page does not already show as text, or None."""
    return {name: value for name, value in (error or {}).items() if name not in SHOWN_FIELDS} or None


def format_json(value: object) -> str:
    return write_for_people(value)[:TEXT_SHOWN]


def count_left_out(value: object) -> int:
    """Return how many characters `format_json` cut off."""
    return max(0, len(write_for_people(value)) - TEXT_SHOWN)


def write_for_people(value: object) -> str:
    return json.dumps(use_exponents(value), indent=2, ensure_ascii=False, default=str)


def use_exponents(value: Any) -> Any:
    """Replace long whole numbers by floats of the same value, so that 1e300 does not take 301 digits.

    PostgreSQL stores the number 1e300 with all its zeros. A number with other digits at its end is left as it is.
    """
    if type(value) is dict:
        return {name: use_exponents(item) for name, item in value.items()}
    if type(value) is list:
        return [use_exponents(item) for item in value]
    if type(value) is int and 10**22 < abs(value) < 10**308 and Decimal(repr(float(value))) == value:
        return float(value)
    return value
