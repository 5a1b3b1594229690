"""Answers that limit a caller have Retry-After."""

import ast
import importlib
import pkgutil

import pytest
from rest_framework.exceptions import Throttled

import controlplane
import jobs
import liveness
from controlplane.core.problems import LIMITING, Problem, handle_exception, retry_headers
from controlplane.observability import probes
from controlplane.serving.answers import refusal
from tests.support.processes import ROOT


def every_problem():
    """Return all problems of the project, after importing every module that defines one."""
    for package in (controlplane, jobs, liveness):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "Problem" in (ROOT / f"{module.name.replace('.', '/')}.py").read_text() if not module.ispkg else False:
                importlib.import_module(module.name)
    found, left = set(), [Problem]
    while left:
        found |= {*(more := left.pop().__subclasses__())}
        left += more
    return sorted(found, key=lambda problem: (problem.__module__, problem.__name__))


def test_every_refusal_has_retry_after_if_trying_again_can_help():
    problems = every_problem()
    assert {problem.status for problem in problems} >= {400, 401, 403, 404, 408, 409, 429, 503}
    for problem in problems:
        for answer in (refusal(problem()), handle_exception(problem(), context())):
            seconds = dict(answer.headers).get("Retry-After")
            assert (seconds is not None) == (problem.status in LIMITING), problem
            assert seconds is None or int(seconds) >= 1, problem


def context():
    class View:
        kwargs = {}

    class Request:
        method, path = "POST", "/api/v1/jobs"

    return {"view": View, "request": Request}


@pytest.mark.parametrize(("seconds", "said"), [(None, "2"), (0, "1"), (0.2, "1"), (29.1, "30"), (60, "60")])
def test_the_time_is_whole_seconds_and_never_none(seconds, said):
    assert retry_headers(429, seconds) == {"Retry-After": said}
    assert retry_headers(413, seconds) == retry_headers(409, seconds) == {}


def test_limits_of_the_framework_have_retry_after_too():
    assert handle_exception(Throttled(wait=7), context()).headers["Retry-After"] == "7"


def test_a_failing_probe_has_retry_after_too():
    assert "Retry-After" in probes.build_probe_response(["The database is read-only."]).headers
    assert "Retry-After" not in probes.build_probe_response([]).headers


def answers_with_a_limiting_status():
    """Return each function that builds an answer with such a status, with its source."""
    for package in ("controlplane", "jobs", "liveness"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            lines = text.splitlines()
            for function in ast.walk(ast.parse(text)):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    numbers = {node.value for node in ast.walk(function) if isinstance(node, ast.Constant)
                               and type(node.value) is int}  # fmt: skip
                    source = "\n".join(lines[function.lineno - 1 : function.end_lineno])
                    if numbers & LIMITING and ("Response" in source or "render" in source or "Answer" in source):
                        yield f"{path.name}:{function.name}", source


def test_no_answer_with_a_limiting_status_is_made_without_the_rule():
    found = dict(answers_with_a_limiting_status())
    assert {"sign_in.py:process_exception", "probes.py:build_probe_response"} <= set(found)
    assert [
        name for name, source in found.items() if "retry_headers" not in source and "retry_after" not in source
    ] == []
