"""Gives steps the data of other steps: checks paths at submission, and reads them when a step begins.

A path is SQL/JSON. Its text comes from a client, so it may take long: each reading has a timeout.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

import structlog
from django.db import OperationalError
from psycopg.errors import QueryCanceled

from controlplane.agent.secrets.values import hides_value
from controlplane.core.database import connection, transaction
from jobs import graph
from jobs.references import PathUse, WrongPath, ancestors, find_references, read_use
from jobs.services import drafts, stored_bytes
from jobs.sql import sql
from jobs.sql.rows.step_data import ResolvedStep, SlowStep

log = structlog.get_logger()
T = TypeVar("T")

NOUNS = {"execution": "a child execution", "wait": "a step that waits", "approval": "an approval"}
"""Types of actions whose values are shown in other places too, so that none of them can be hidden."""
PATH_LENGTH = 1000
PATHS_LIMIT = 100
"""Largest number of references in one payload."""
TIMEOUT = 2.0
"""Seconds for the paths of all steps that begin together, and again for each of them if that is not enough."""
SLOW_LIMIT = 3
"""Number of slow steps after which the other steps of a call are not tried any more."""


def find_path_problems(definition: Mapping[str, Any]) -> list[str]:
    """Return an error message for each path that a step must not use. Dependencies have been checked before.

    Hooks and outputs of an open execution may name steps that are added later.
    """
    steps, hooks = definition["steps"], drafts.hooks_of(definition)
    used = [(f"Step {step['key']!r}", step["key"], paths) for step in steps if (paths := list(paths_of(step)))]
    of_loops = {step["key"]: {path for _, path in _references_of(step)} for step in steps if drafts.is_loop(step)}
    used += [(f"Hook {hook['key']!r}", None, paths) for hook in hooks if (paths := list(paths_of(hook)))]
    if outputs := [path for _, path in find_references(definition.get("outputs", {}))]:
        used.append(("The outputs", None, outputs))
    if not used:
        return []
    if problems := [
        f"{who}: {len(own)} paths, but at most {PATHS_LIMIT}." for who, _, own in used if len(own) > PATHS_LIMIT
    ]:
        return problems
    known = read_paths(path for _, _, paths in used for path in paths)
    depends_on = ancestors({step["key"]: step.get("depends_on", []) for step in steps})
    showing = {step["key"]: NOUNS[step["action"]["type"]] for step in steps if step["action"]["type"] in NOUNS}
    all_keys = {step["key"] for step in steps}
    is_open = definition.get("sealed") is False
    list_of = {step["key"]: step.get("for_each") for step in steps}
    for who, key, paths in used:
        for path in paths:
            use = known[path]
            if hides_value(path) and (noun := showing.get(key) or (path == list_of.get(key) and "a loop")):
                problems.append(f"{who}: {noun} cannot get a hidden value, like that at {path}.")
            if isinstance(use, str):
                problems.append(f"{who}: the path {path} {use}.")
            elif use.is_of_item and path not in of_loops.get(key, ()):
                problems.append(f"{who}: the path {path} may only be in the payload of a step with for_each.")
            elif (unknown := sorted(use.steps - all_keys)) and not (is_open and key is None):
                problems.append(f"{who}: the path {path} names {unknown[0]!r}, which no step has.")
            elif key is not None and (later := sorted(on for on in use.steps if not depends_on(on, key))):
                problems.append(f"{who}: the path {path} names {later[0]!r}, on which it does not depend.")
            if len(problems) > graph.WORDS_LIMIT:
                return [*problems, "There may be more."]
    return problems


def paths_of(step: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of a step: its condition, its list, and the references in its own payload."""
    yield from (step[name] for name in ("when", "for_each") if step.get(name) is not None)
    yield from (path for _, path in _references_of(step))


def _references_of(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return find_references(drafts.own_payload(step, None))


def build_path_columns(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a step that its paths fill. Empty for a step without paths."""
    references = dict(_references_of(step))
    paths = list(paths_of(step))
    columns: dict[str, Any] = {"run_if_skipped": step.get("run_if_skipped", False)}
    if not paths:
        return columns
    return {**columns, "condition": step.get("when"), "payload_from": references or None, "reads": _steps_read(paths)}


def build_outputs(definition: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the column `outputs_from` of an execution, or None if it defines no outputs."""
    if "outputs" not in definition:
        return None
    references = dict(find_references(definition["outputs"]))
    shown = {pointer: None if hides_value(path) else path for pointer, path in references.items()}
    return {"paths": shown, "reads": _steps_read(references.values())}


def _steps_read(paths: Iterable[str]) -> list[str]:
    return sorted(set().union(*(use.steps for use in read_paths(paths).values() if not isinstance(use, str))))


def read_paths(paths: Iterable[str]) -> dict[str, PathUse | str]:
    """Return the part of the context that each path reads, or what is wrong with it: the end of a sentence.

    At most one query.
    """
    texts = list(dict.fromkeys(paths))
    known = {text: use for text in texts if (use := _KNOWN.get(text)) is not None}
    if missing := [text for text in texts if text not in known]:
        readable = [text for text in missing if len(text) <= PATH_LENGTH and "\0" not in text]
        canonical = {row.path: row.canonical for row in sql.read_paths.fetch_rows(paths=readable)}
        if len(_KNOWN) > KNOWN_LIMIT:
            _KNOWN.clear()
        for text in missing:
            known[text] = _judge(text, canonical.get(text))
            _KNOWN[text] = known[text]
    return known


KNOWN_LIMIT = 2000
_KNOWN: dict[str, PathUse | str] = {}
"""Paths that this process has read. What they mean never changes."""


def _judge(text: str, canonical: str | None) -> PathUse | str:
    if len(text) > PATH_LENGTH:
        return f"has {len(text)} characters, but at most {PATH_LENGTH} are allowed"
    if canonical is None:
        return "is no SQL/JSON path"
    try:
        return read_use(canonical)
    except WrongPath as wrong:
        return str(wrong)


def resolve_steps(executions: Iterable[UUID]) -> list[ResolvedStep | SlowStep]:
    """Begin the steps of these executions that waited only for their paths. In the caller's transaction.

    A path that takes too long fails its own step and no other. The caller propagates the steps that ended, and begins
    the children.
    """
    # Locked first, so that a wait for a lock does not count as a slow path.
    steps = [row.id for row in sql.lock_steps_to_resolve.fetch_rows(executions=sorted(executions))]
    if (together := _resolve_in_time(steps)) is not None:
        return [*together]
    rows: list[ResolvedStep | SlowStep] = []
    slow = 0
    for step in steps:
        if slow == SLOW_LIMIT:
            rows += sql.fail_slow_step.fetch_rows(step=step, seconds=TIMEOUT, slow_steps=slow)
        elif (resolved := _resolve_in_time([step])) is None:
            slow += 1
            log.warning("The paths of a step took too long", job=str(step))
            rows += sql.fail_slow_step.fetch_rows(step=step, seconds=TIMEOUT, slow_steps=None)
        else:
            rows += resolved
    return rows


def read_outputs(executions: list[UUID]) -> None:
    """Store the outputs of executions that are about to end. In the caller's transaction, which has locked their roots.

    Outputs that take too long become null, and an event of the execution reports it. After SLOW_LIMIT of them the
    others get less time.
    """
    if not executions or _store_outputs(executions, TIMEOUT):
        return
    slow = 0
    for execution in executions:
        seconds = TIMEOUT if slow < SLOW_LIMIT else TIMEOUT / 20
        if len(executions) == 1 or not _store_outputs([execution], seconds):
            slow += 1
            log.warning("The outputs of an execution took too long", execution=str(execution))
            sql.give_up_outputs.fetch_rows(execution=execution, seconds=seconds)


def _store_outputs(executions: list[UUID], seconds: float) -> bool:
    """Store outputs. Return False, and leave the executions as they were, if it takes longer than `seconds`."""
    return _in_time(lambda: sql.read_outputs.fetch_rows(executions=executions), seconds) is not None


def _resolve_in_time(steps: list[UUID]) -> list[ResolvedStep] | None:
    """Begin these steps. Return None, and leave them as they were, if their paths took too long."""
    return _in_time(lambda: stored_bytes.counting(sql.resolve_steps).fetch_rows(steps=steps), TIMEOUT) if steps else []


def _in_time(call: Callable[[], T], seconds: float) -> T | None:
    """Return the result of a statement that reads paths. Undo it and return None if it takes longer than `seconds`."""
    with _statement_timeout(seconds):
        try:
            with transaction.atomic():
                return call()
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            return None


@contextmanager
def _statement_timeout(seconds: float) -> Iterator[None]:
    """Limit the statements of a block. The earlier limit is set again after it, unless the transaction has ended."""
    with connection.cursor() as cursor:
        cursor.execute("select current_setting('statement_timeout')")
        before = cursor.fetchone()[0]
        cursor.execute("select set_config('statement_timeout', %s, true)", [str(int(seconds * 1000))])
        try:
            yield
        finally:
            cursor.execute("select set_config('statement_timeout', %s, true)", [before])
