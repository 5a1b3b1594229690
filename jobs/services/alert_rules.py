"""Rules of alerts: what they find, how severe it is, and where the console shows it."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

from controlplane.core.durations import describe_duration
from jobs.conf import alerts_conf, console_url, flag_parameters
from jobs.selectors.instance import COUNT_LIMIT
from jobs.sql import sql
from jobs.sql.rows.alerts import AlertFact
from jobs.states import Flag
from jobs.verdict.clauses import format_plain
from jobs.verdict.holds import describe_hold, is_old
from jobs.verdict.snapshots import snapshot_concerns
from liveness.selectors.clock import is_check_late

CRITICAL, WARNING, INFO = "critical", "warning", "info"
SEVERITIES = {
    "server_lost": CRITICAL,
    "brake": CRITICAL,
    "check_overdue": CRITICAL,
    "quarantine": WARNING,
    "no_matching_worker": WARNING,
    "stuck_job": WARNING,
    "deadline_missed": WARNING,
    "answer_waits": INFO,
    "version_skew": INFO,
    "oldest_waiting": WARNING,
    "oldest_snapshot": WARNING,
    "hold_open": WARNING,
    "failures_a_minute": WARNING,
}
"""Severities by rule."""
RULES = tuple(SEVERITIES)
STUCK = (Flag.HELD_BY_LOST_SERVER, Flag.STALE_RUNNER, Flag.STALE_CLAIM, Flag.REFUSED_BY_ALL, Flag.WAITS_AFTER_LOSS)
RECENT_LOSS_SECONDS = 900
"""Seconds in which a loss is found although its server is already retired. Longer than any gap between messages."""
LOSSES_NAMED = 50
"""Clusters that get their own incident. A token may use any number of clusters."""
JOBS_NAMED = 10


def find_conditions(figures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a condition for each finding of the rules that are switched on."""
    rules, incidents = alerts_conf(), figures["incidents"]
    facts = sql.read_alert_facts.fetch_rows(lately=float(RECENT_LOSS_SECONDS))
    if rules.server_lost:
        yield from describe_losses([fact for fact in facts if fact.rule == "server_lost"])
    for fact in facts:
        if fact.rule == "version_skew" and rules.version_skew:
            names = ", ".join(fact.names[:10]) + (" …" if fact.number > 10 else "")
            summary = f"Workers of cluster {fact.cluster} run {fact.number} versions: {names}"
            url = link_to("servers", cluster=fact.cluster)
            yield build_condition(fact.rule, summary, fact.cluster, url=url, count=fact.number, names=fact.names[:10])
    for brake in figures["brakes"] or []:
        if rules.brake:
            summary = f"The brake holds {brake['words']}: {brake['silent']} of {brake['alive']} silent at the same time"
            url, counts = link_to("brake"), {"silent": brake["silent"], "alive": brake["alive"]}
            yield build_condition("brake", summary, brake["key"], url=url, **counts)
    age = figures["check_age"]
    if rules.check_overdue and age is not None and is_check_late(age):
        summary = f"No liveness check has finished for {describe_duration(age)}, so lost servers are not detected"
        yield build_condition("check_overdue", summary, url=link_to("overview"), seconds=age)
    if rules.quarantine and (count := incidents["quarantined"]):
        yield describe_quarantine(count)
    flags = figures["flags"]
    unmatched = flags[Flag.WAITS_FOR_TAGS] + flags[Flag.WAITS_FOR_SLOTS]
    if rules.no_matching_worker and (count := unmatched + soon_failing(figures)):
        summary = f"{count_of(count, 'job')} waiting for tags or slots that no alive worker has"
        url = link_to("jobs", state="PENDING")
        yield build_condition("no_matching_worker", summary, url=url, count=count)
    if rules.stuck_job and any(figures["flags"][flag] for flag in STUCK):
        yield from find_stuck_jobs()
    yield from find_waiting_answers()
    yield from find_missed_deadlines()
    if rules.oldest_waiting is not None and (figures["waiting"] or 0) > rules.oldest_waiting:
        summary = f"The oldest waiting job has waited for {describe_duration(figures['waiting'])}"
        url = link_to("jobs", state="PENDING")
        yield build_condition("oldest_waiting", summary, url=url, seconds=figures["waiting"])
    for concern in snapshot_concerns(figures):
        yield build_condition("oldest_snapshot", concern.text, url=link_to("overview"), seconds=-(concern.seconds or 0))
    yield from find_old_holds(figures["holds"])
    rate = incidents["failed_lately"] / 5
    if rules.failures_a_minute is not None and rate >= rules.failures_a_minute:
        url = link_to("jobs", state="FAILED")
        yield build_condition("failures_a_minute", f"{rate:g} jobs fail each minute", url=url, per_minute=rate)


def soon_failing(figures: dict[str, Any]) -> int:
    """Return the number of jobs that will fail unless a worker with their tags comes."""
    return sum(row["jobs"] for row in figures["to_be_failed"] or [])


def describe_losses(facts: list[AlertFact]) -> Iterator[dict[str, Any]]:
    """Yield a condition for each cluster with lost servers. The smallest of very many clusters share one."""
    facts = sorted(facts, key=lambda fact: (-fact.number, fact.cluster))
    for fact in facts[:LOSSES_NAMED]:
        names = ", ".join(fact.names) + (" …" if fact.number > len(fact.names) else "")
        summary = f"{count_of(fact.number, 'server')} of cluster {fact.cluster} lost: {names}"
        servers = [{**row, "url": link_to("server", row["id"])} for row in read_json(fact.servers)]
        url = servers[0]["url"] if fact.number == 1 and servers else link_to("servers", cluster=fact.cluster)
        yield build_condition(
            "server_lost", summary, fact.cluster, url=url, items=fact.losses,
            count=fact.number, names=fact.names, servers=servers,
        )  # fmt: skip
    if others := facts[LOSSES_NAMED:]:
        count = sum(fact.number for fact in others)
        summary = f"{count_of(count, 'server')} of {len(others)} other clusters lost"
        yield build_condition("server_lost", summary, url=link_to("servers"), count=count)


def find_stuck_jobs() -> Iterator[dict[str, Any]]:
    """Yield a condition for each flag of jobs that wait for a person to act. The flag is its reason."""
    flags = [flag.value for flag in STUCK]
    for row in sql.read_stuck_jobs.fetch_rows(flags=flags, only=None, scan_limit=COUNT_LIMIT, **flag_parameters()):
        jobs = [{**job, "url": link_to("job", job["id"])} for job in read_json(row.jobs)]
        names = ", ".join(job["name"] or job["id"] for job in jobs) + (" …" if row.number > len(jobs) else "")
        summary = f"{count_of(row.number, 'job')} stuck, {Flag(row.flag).meaning}: {names}"
        url = jobs[0]["url"] if row.number == 1 else link_to("jobs", flag=row.flag)
        yield build_condition(
            "stuck_job", summary, row.flag, url=url, items=row.ids, reason=row.flag, count=row.number, jobs=jobs
        )


def find_missed_deadlines() -> Iterator[dict[str, Any]]:
    """Yield a condition for the jobs past their deadlines, and one for the executions, if the rule is switched on."""
    lately = float(RECENT_LOSS_SECONDS)
    for row in sql.read_missed_deadlines.fetch_rows(lately=lately) if alerts_conf().deadline_missed else []:
        some = [{**one, "url": link_to(row.kind, one["id"])} for one in read_json(row.named)]
        names = ", ".join(one["name"] or one["id"] for one in some) + (" …" if row.number > len(some) else "")
        listed = link_to("jobs", flag=Flag.DEADLINE_MISSED) if row.kind == "job" else link_to("executions")
        yield build_condition(
            "deadline_missed", f"{count_of(row.number, row.kind)} past the deadline: {names}", row.kind,
            url=some[0]["url"] if row.number == 1 else listed, items=row.ids, reason=row.kind, count=row.number,
            **{f"{row.kind}s": some},
        )  # fmt: skip


def describe_quarantine(count: int) -> dict[str, Any]:
    rows = sql.read_quarantined_jobs.fetch_rows(most=COUNT_LIMIT)
    jobs = [{"id": str(row.id), "name": row.name, "url": link_to("job", row.id)} for row in rows[:JOBS_NAMED]]
    return build_condition(
        "quarantine", f"{count_of(count, 'job')} in quarantine", url=link_to("quarantine"),
        items=[str(row.id) for row in rows], count=count, jobs=jobs,
    )  # fmt: skip


def find_old_holds(open_holds: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a condition if holds have been in force for too long. They are sorted by age, oldest first."""
    held = [hold for hold in open_holds if is_old(hold)]
    if not held:
        return
    holds = [{name: hold[name] for name in ("id", "kind", "value", "note", "by", "jobs")} for hold in held]
    summary = format_plain(describe_hold(held[0])) + (f" ({len(held)} old holds in all)" if len(held) > 1 else "")
    items = [hold["id"] for hold in held]
    yield build_condition("hold_open", summary, url=link_to("holds"), items=items, count=len(held), holds=holds)


def find_waiting_answers() -> Iterator[dict[str, Any]]:
    """Yield a condition if steps wait for answers of people, and the rule is switched on."""
    waiting = sql.read_waiting_answers.fetch_rows(most=COUNT_LIMIT) if alerts_conf().answer_waits else []
    if not waiting:
        return
    steps = "1 step waits" if len(waiting) == 1 else f"{len(waiting)} steps wait"
    jobs = [{"id": str(row.id), "name": row.message, "url": link_to("answer", row.id)} for row in waiting[:JOBS_NAMED]]
    yield build_condition(
        "answer_waits", f"{steps} for an answer: {waiting[0].message}" + (" …" if len(waiting) > 1 else ""),
        url=jobs[0]["url"] if len(waiting) == 1 else link_to("answers"),
        items=[str(row.id) for row in waiting], count=len(waiting), jobs=jobs,
    )  # fmt: skip


def build_condition(
    rule: str,
    summary: str,
    subject: str = "",
    *,
    url: str | None = None,
    items: list[str] | None = None,
    **details: object,
) -> dict[str, Any]:
    """Return a condition. `items` are the keys of its subjects: a new one in an open incident causes a message."""
    return {
        "rule": rule,
        "subject": subject,
        "summary": summary,
        "severity": SEVERITIES[rule],
        "url": url or "",
        "items": items or [],
        "details": details,
    }


def link_to(page: str, *parts: object, **query: str) -> str | None:
    """Return the public address of a page of the console; None if CONSOLE_URL is not set or there are no pages."""
    if not (base := console_url()):
        return None
    try:
        home, path = reverse("instance:overview"), reverse(f"instance:{page}", args=parts)
    except NoReverseMatch:
        return None
    if f"{base}/".endswith(home):
        base = f"{base}/".removesuffix(home)
    return f"{base}{path}" + (f"?{urlencode(query)}" if query else "")


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def read_json(text: str | None) -> list[dict[str, Any]]:
    return json.loads(text or "null") or []
