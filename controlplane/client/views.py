"""Texts and tables of servers, jobs, executions and triggers for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from controlplane.client.limits import QUOTAS
from controlplane.client.output import Output, time_text

SERVERS = {
    "name": lambda server: server["name"],
    "type": lambda server: server["type"],
    "state": lambda server: server["state"],
    "work": lambda server: may_get_work(server),
    "held": lambda server: f"{server['used_slots']}/{server['max_concurrent']}",
    "cluster": lambda server: server["cluster"],
    "heartbeat": lambda server: time_text(server["last_heartbeat_at"]),
    "id": lambda server: server["id"],
}
JOBS = {
    "id": lambda job: job["id"],
    "state": lambda job: job["state"],
    "job": lambda job: job["name"] or action_text(job["action"]),
    "tries": lambda job: len(job["attempts"]),
    "server": lambda job: last_server(job),
    "created": lambda job: time_text(job["created_at"]),
    "finished": lambda job: time_text(job["finished_at"]),
    "remarks": lambda job: ", ".join([*job["flags"], *parked_words(job), *error_words(job)]),
}
EXECUTIONS = {
    "id": lambda execution: execution["id"],
    "name": lambda execution: execution["name"],
    "state": lambda execution: execution["state"],
    "steps": lambda execution: ", ".join(f"{number} {state}" for state, number in execution["steps"].items() if number),
    "created": lambda execution: time_text(execution["created_at"]),
    "finished": lambda execution: time_text(execution["finished_at"]),
}
TRIGGERS = {
    "id": lambda trigger: trigger["id"],
    "name": lambda trigger: trigger["name"],
    "schedule": lambda trigger: schedule_text(trigger),
    "enabled": lambda trigger: "yes" if trigger["enabled"] else "no",
    "next": lambda trigger: time_text(trigger["next_slot_at"]),
    "last": lambda trigger: trigger["slots"][0]["outcome"] if trigger["slots"] else "",
}
HOLDS = {
    "id": lambda hold: hold["id"],
    "of": lambda hold: held_text(hold),
    "namespace": lambda hold: hold["namespace"],
    "mode": lambda hold: hold["mode"],
    "parked": lambda hold: hold["parked"],
    "ends": lambda hold: time_text(hold["ends_at"]),
    "by": lambda hold: hold["by"],
    "note": lambda hold: hold["note"],
}
QUEUES = {
    "namespace": lambda queue: queue["namespace"],
    "tags": lambda queue: " ".join(queue["tags"]),
    "waiting": lambda queue: queue["waiting"],
    "parked": lambda queue: queue["parked"],
    "scheduled": lambda queue: queue["scheduled"],
    "running": lambda queue: queue["running"],
    "oldest": lambda queue: time_text(queue["oldest_at"]),
    "workers": lambda queue: queue["workers"],
}
LIMITS = {
    "pattern": lambda rule: rule["pattern"],
    "namespace": lambda rule: rule["namespace"],
    "running": lambda rule: "" if rule["running"] is None else rule["running"],
    "starts": lambda rule: "" if rule["starts"] is None else f"{rule['starts']} in {rule['per_seconds']:g} s",
    "quotas": lambda rule: ", ".join(f"{name} {rule[name]}" for name in [*QUOTAS][1:] if rule.get(name) is not None),
    "fair": lambda rule: {True: "yes", False: "no"}.get(rule.get("fair"), ""),
    "weight": lambda rule: rule.get("weight") or "",
    "note": lambda rule: rule["note"],
    "by": lambda rule: rule["by"],
    "changed": lambda rule: time_text(rule["changed_at"]),
}
BATCHES = {
    "id": lambda batch: batch["id"],
    "operation": lambda batch: batch["operation"],
    "chosen": lambda batch: batch["chosen"],
    "state": lambda batch: batch["state"],
    "done": lambda batch: f"{batch['done']}/{batch['total']}",
    "refused": lambda batch: batch["refused"],
    "actor": lambda batch: batch["actor"],
    "created": lambda batch: time_text(batch["created_at"]),
}
EVENTS = {
    "at": lambda event: time_text(event["at"]),
    "what": lambda event: event["action"] or f"{event['from']} → {event['to']}",
    "actor": lambda event: event["actor"],
    "reason": lambda event: event["reason"],
}


def event(event: Mapping[str, Any]) -> str:
    """Return an event as a line: time, object, what happened, actor and reason."""
    subject = event["subject"]
    name = subject["name"] or subject["id"]
    values = (column(event) for column in EVENTS.values())
    at, *words = (text for text in values if text)
    return "  ".join([at, f"{subject['type']} {name}", *words])


def last_server(job: Mapping[str, Any]) -> str:
    """Return the name of the server that holds or held the latest attempt."""
    return (job["attempts"][-1].get("server") or {}).get("name", "") if job["attempts"] else ""


def parked_words(job: Mapping[str, Any]) -> list[str]:
    """Return why a job is parked, in words."""
    texts = {"limit": "limited by {}", "max_parallel": "waits for other items of {}", "hold": "on hold"}
    return [texts[by].format(name) for by, name in (job.get("parked_by") or {}).items() if by in texts]


def error_words(job: Mapping[str, Any]) -> list[str]:
    return [job["error"]["code"]] if job["error"] else []


def server(item: Mapping[str, Any], out: Output) -> None:
    names = ("id", "name", "type", "cluster", "hostname", "pid", "version", "state", "tags", "max_concurrent", "config")
    out.fields(item, names)
    out.fields({"work": may_get_work(item), "heartbeat": item["last_heartbeat_at"]}, ("work", "heartbeat"))
    out.fields(item, ("drain", "next_transition"))
    if item["attempts"]:
        out.line("")
        rows = [
            [held["job"], held["number"], held["state"], time_text(held["claimed_at"])] for held in item["attempts"]
        ]
        out.table(["job", "attempt", "state", "claimed"], rows)


def job(item: Mapping[str, Any], out: Output) -> None:
    names = ("id", "name", "state", "flags", "action", "payload", "tags", "execution", "step", "key", "resubmission_of")
    out.fields(item, (*names, "cancel_requested_at", "output", "error", "late_reports"))
    out.line("")
    rows = [
        [entry["attempt"], entry["state"], time_text(entry["at"]), (entry["server"] or {}).get("name"), entry["reason"]]
        for entry in item["timeline"]
    ]
    out.table(["attempt", "state", "at", "server", "reason"], rows)


def execution(item: Mapping[str, Any], out: Output) -> None:
    names = ("id", "name", "state", "flags", "progress", "key", "limits", "parked_by", "error", "inputs", "rerun_of")
    out.fields(item, (*names, "created_at", "finished_at"))
    out.line("")
    rows = [
        [step["key"], step["state"], step["attempt_count"], place_of_step(step), step["job"]]
        for step in [*item["steps"], *item["on_error"], *item["on_success"], *item["on_complete"]]
    ]
    out.table(["step", "state", "tries", "server", "job"], rows)


def place_of_step(step: Mapping[str, Any]) -> str | None:
    """Return the server that holds a step, or what the step waits for without a worker, or how far its loop is."""
    if items := step.get("progress"):
        return f"{items['done']} of {items['total']} items done, {items['failed']} failed"
    if wait := step.get("waiting_for"):
        event = f"for {wait['signal'] or 'an answer'} " if wait["what"] != "time" else ""
        return f"waits {event}" + (f"until {time_text(wait['until'])}" if wait["until"] else "without a limit")
    return (step["server"] or {}).get("name")


def batch(item: Mapping[str, Any], out: Output) -> None:
    names = ("id", "operation", "subject", "chosen", "state", "actor", "note", "total", "done", "refused", "pending")
    out.fields(item, (*names, "stopped_by", "created_at", "finished_at"))
    if item["refusals"]:
        out.line("")
        out.table(["refused", "reason"], [[row["items"], row["reason"]] for row in item["refusals"]])
    out.line("")
    rows = [[one["subject"], one["outcome"], one["result"], one["reason"]] for one in item["items"]]
    out.table([item["subject"], "outcome", "new", "reason"], rows)


def hold(item: Mapping[str, Any], out: Output) -> None:
    names = ("id", "namespace", "mode", "parked", "by", "note", "created_at", "ends_at")
    out.fields({"of": held_text(item)}, ("of",))
    out.fields(item, names)


def held_text(hold: Mapping[str, Any]) -> str:
    return ", ".join(f"{kind} {value}" for kind, value in hold["of"].items())


def instance_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of the control plane in words, by name."""
    servers: Counter[str] = Counter()
    for count in item["servers"]:
        servers[f"{count['type']} {count['state']}"] += count["servers"]
    return {
        "at": item["at"],
        "verdict": item["verdict"]["text"] if "verdict" in item else "",
        "servers": counts_text(servers),
        "jobs": counts_text(item["jobs"]),
        "flagged": counts_text(item["flagged"]),
        "oldest waiting": seconds_text(item["oldest_pending_seconds"]),
        "last check": seconds_text(item["last_check"]["age_seconds"], " ago"),
        "maintenance": item["maintenance"] and f"since {item['maintenance']['since']}: {item['maintenance']['note']}",
        "brakes": ", ".join(brake["type"] for brake in item["brakes"]),
    }


def instance(item: Mapping[str, Any], out: Output) -> None:
    fields = instance_fields(item)
    out.fields(fields, fields)
    if item["attention"]:
        out.line("")
        rows = [
            [one["server"]["name"], one["state"], seconds_text(one["silence_seconds"]), one["held"], next_text(one)]
            for one in item["attention"]
        ]
        out.table(["server", "state", "silent", "holds", "next"], rows)


def outcome(job: Mapping[str, Any]) -> str:
    """Return the end of a job as one line."""
    error = job["error"]
    return f"{job['id']} {job['state']}" + (f" {error['code']}: {error.get('message', '')}" if error else "")


def brief(item: Mapping[str, Any], target: str) -> str:
    """Return one line about the result of an action. A resubmission or a rerun may have a new id."""
    name, state = item.get("name", ""), item.get("state") or item.get("outcome", "")
    new = item.get("id") or item.get("job") or target
    more = f" {may_get_work(item)}" if "cordoned" in item else ""
    if item.get("cancel_requested_at") and not item["finished_at"]:
        more = " (cancellation requested)"
    return f"{target}{f' → {new}' if new != target else ''} {f'{name} ' if name else ''}{state}{more}"


def may_get_work(server: Mapping[str, Any]) -> str:
    if server["drain"]:
        return "draining"
    if server["cordoned"]:
        return "cordoned"
    if server["own"] or server["state"] != "RUNNING":
        return "no"
    return "yes" if server["fresh"] else "silent"


def action_text(action: Mapping[str, Any]) -> str:
    command = action.get("command")
    text = " ".join(map(str, command)) if isinstance(command, list) else command
    named = (action[name] for name in ("path", "name", "task", "image") if action.get(name))
    return str(text or next(named, action["type"]))


def counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


def schedule_text(trigger: Mapping[str, Any]) -> str:
    named = trigger["cron"] or (trigger.get("on_signal") and f"on {trigger['on_signal']}")
    return named or f"every {trigger['interval_seconds']:g} s"


def seconds_text(seconds: float | None, after: str = "") -> str:
    return "" if seconds is None else f"{seconds:.1f} s{after}"


def next_text(one: Mapping[str, Any]) -> str:
    coming = one["next_transition"]
    return "" if coming is None else f"{coming['to']} {time_text(coming['at'])} {coming['reason']}"
