"""The secrets that jobs name: found on this machine before their code begins, and in nothing that is reported."""

import html
import json
import os
import re
import sys
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode

import pytest

from controlplane.agent.secrets import values as secret_values
from controlplane.agent.secrets.mask import CUT_FROM, SecretMask
from controlplane.agent.secrets.sources import SIZE_LIMIT, SecretSources, SecretUnavailable
from tests.support.standin import eventually

SECRET = "hunter2-of-the-database"
NAMED = {"secret": "db-password"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "db-password").write_text(f"{SECRET}\n")
    return tmp_path / "secrets"


def test_code_gets_the_secrets_that_its_environment_and_its_payload_name(plane, agent, tmp_path, folder):
    script = {"type": "script", "command": f'printf %s "$PASSWORD" > {tmp_path}/env; cat > {tmp_path}/payload'}
    attempt = plane.submit(
        {**script, "env": {"PASSWORD": NAMED, "PLAIN": "p"}}, {"deep": [{"password": NAMED}], "n": 1}
    )
    agent("--secrets-dir", str(folder))
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"
    assert (tmp_path / "env").read_text() == SECRET
    assert json.loads((tmp_path / "payload").read_text()) == {"deep": [{"password": SECRET}], "n": 1}


def test_no_report_of_code_has_its_secrets(plane, agent, folder, tmp_path):
    (tmp_path / "leaks.py").write_text(
        "from controlplane.agent import checkpoint, progress\n"
        "def leak(payload):\n"
        "    progress(0.5, payload['password']); checkpoint({'at': payload['password']})\n"
        "    return {payload['password']: ['it is ' + payload['password']], 'marked': payload['pin']}\n"
        "def fail(payload):\n    raise ValueError(payload['password'])\n"
    )
    payload = {"password": NAMED, "pin": {"secret_value": "4711-0815"}}
    says = 'echo "it is $PASSWORD"; echo "\\"$PASSWORD\\"" >&2; exit 3'
    attempts = [
        plane.submit({"type": "script", "command": says, "env": {"PASSWORD": NAMED}}),
        plane.submit({"type": "script", "command": 'echo "it is $PASSWORD"', "env": {"PASSWORD": NAMED}}),
        plane.submit({"type": "callable", "path": "leaks:leak"}, payload),
        plane.submit({"type": "callable", "path": "leaks:fail"}, payload),
    ]
    worker = agent("--secrets-dir", str(folder))
    failed, printed, leaked, raised = [eventually(lambda id=id: plane.final(id)) for id in attempts]
    assert failed["error"]["traceback"] == '"***"\n'
    assert printed["output"]["stdout"] == "it is ***\n"
    assert leaked["output"] == {"***": ["it is ***"], "marked": "***"}
    assert raised["error"]["message"] == "***" and "ValueError: ***" in raised["error"]["traceback"]
    lines = [line for report in plane.reports if report["event"] == "LOG" for line in report["lines"]]
    assert {"it is ***", '"***"'} <= set(lines)
    assert SECRET not in json.dumps(plane.calls) and "4711-0815" not in json.dumps(plane.calls)
    assert SECRET not in worker.log


def test_a_secret_by_name_alone_is_masked_for_people_and_not_in_an_output(plane, agent):
    env = {"DB_PASSWORD": "of the submitter", "API_TOKEN": "short"}
    says = "echo $DB_PASSWORD, $API_TOKEN; echo $DB_PASSWORD >&2"
    attempts = [plane.submit({"type": "script", "command": f"{says}; exit {n}", "env": env}) for n in (0, 3)]
    agent()
    completed, failed = [eventually(lambda id=id: plane.final(id)) for id in attempts]
    assert completed["output"]["stdout"] == "of the submitter, short\n"
    assert failed["error"]["traceback"] == "***\n"
    lines = {line for report in plane.reports if report["event"] == "LOG" for line in report["lines"]}
    assert lines == {"***, short", "***"}


def test_a_password_in_an_address_is_masked_for_people_and_not_in_an_output(plane, agent):
    url = "postgresql://user:hunter2@db.example.org/shop"
    says = f"echo trying {url}; echo cannot reach {url} >&2; echo '0.5 {url}' > $JOB_PROGRESS"
    attempts = [plane.submit({"type": "script", "command": f"{says}; exit {n}"}) for n in (0, 3)]
    agent()
    completed, failed = [eventually(lambda id=id: plane.final(id)) for id in attempts]
    shown = "postgresql://user:***@db.example.org/shop"
    assert completed["output"]["stdout"] == f"trying {url}\n"
    assert failed["error"]["traceback"] == f"cannot reach {shown}\n"
    lines = {line for report in plane.reports if report["event"] == "LOG" for line in report["lines"]}
    assert lines == {f"trying {shown}", f"cannot reach {shown}"}
    assert {report["message"] for report in plane.reports if report["event"] == "PROGRESS"} == {shown}


def test_a_secret_comes_from_a_file_a_variable_or_a_command_in_this_order(plane, agent, tmp_path, folder, monkeypatch):
    monkeypatch.setenv("CONTROLPLANE_SECRET_DB_PASSWORD", "not this one")
    monkeypatch.setenv("CONTROLPLANE_SECRET_API_KEY", "of the variable")
    env = {name: {"secret": name} for name in ("db-password", "api.key", "other")}
    command = 'printf "%s\\n" "$CONTROLPLANE_SECRET_API_KEY" >> asked; printf "command says %s" "$1"'
    code = f"import os, json; json.dump([os.environ[n] for n in {list(env)!r}], open('found', 'w')); " + (
        "assert not [n for n in os.environ if n.startswith('CONTROLPLANE_')]"
    )
    attempt = plane.submit({"type": "script", "command": [os.sys.executable, "-c", code], "env": env})
    agent("--secrets-dir", str(folder), "--secret-command", command)
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"
    assert json.loads((tmp_path / "found").read_text()) == [SECRET, "of the variable", "command says other"]
    assert (tmp_path / "asked").read_text().splitlines() == ["of the variable"]  # once, because no other file has it


def test_a_missing_secret_fails_the_attempt_before_its_code_starts(plane, agent, folder, tmp_path):
    (folder / "empty").touch()
    cases = {
        "missing": "the secret command found no missing: it ended with status 4",
        "empty": "the secret empty is empty",
    }
    attempts = {
        name: plane.submit({"type": "script", "command": f"touch {tmp_path}/begun", "env": {"X": {"secret": name}}})
        for name in cases
    }
    worker = agent("--secrets-dir", str(folder), "--secret-command", "echo vault is sealed >&2; exit 4")
    for name, attempt in attempts.items():
        error = eventually(lambda attempt=attempt: plane.final(attempt))["error"]
        assert (error["code"], error["message"]) == ("SECRET_UNAVAILABLE", cases[name])
        assert plane.events(attempt) == ["STARTED", "FAILED"]
    assert not (tmp_path / "begun").exists()
    assert "vault is sealed" in worker.log and "vault is sealed" not in json.dumps(plane.reports)


def test_without_any_source_the_error_names_the_missing_secret(plane, agent):
    attempt = plane.submit({"type": "script", "command": "true", "env": {"X": NAMED}})
    agent()
    error = eventually(lambda: plane.final(attempt))["error"]
    assert error["message"] == "this worker has no secret db-password"


def test_while_a_command_is_asked_the_job_is_claimed_and_others_run(plane, agent, tmp_path):
    waits = plane.submit({"type": "script", "command": "true", "env": {"X": NAMED}})
    agent("--secret-command", f"touch {tmp_path}/asked; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo found")
    eventually((tmp_path / "asked").exists)
    other = plane.submit("true")
    assert eventually(lambda: plane.final(other))["event"] == "COMPLETED"
    assert plane.events(waits) == []
    (tmp_path / "go").touch()
    assert eventually(lambda: plane.final(waits))["event"] == "COMPLETED"


def test_a_job_that_is_cancelled_while_its_secret_is_looked_for_never_begins(plane, agent, tmp_path):
    attempt = plane.submit({"type": "script", "command": f"touch {tmp_path}/begun", "env": {"X": NAMED}})
    agent("--secret-command", f"touch {tmp_path}/asked; sleep 1000")
    eventually((tmp_path / "asked").exists)
    plane.heartbeat = {"cancel": [attempt]}
    assert eventually(lambda: plane.final(attempt))["event"] == "CANCELLED"
    assert plane.events(attempt) == ["CANCELLED"]
    assert not (tmp_path / "begun").exists()


def test_a_file_may_be_a_link_and_must_be_a_file_of_text(tmp_path):
    sources = SecretSources(tmp_path)
    (tmp_path / "target").write_text("of a link\r\n")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_text("x" * SIZE_LIMIT)
    os.mkfifo(tmp_path / "pipe")
    assert sources.find("link") == "of a link"
    assert sources.find("nothing") is None
    for name, why in {
        "folder": "not a regular file",
        "pipe": "not a regular file",
        "binary": "UTF-8",
        "large": "bytes or more",
    }.items():
        with pytest.raises(SecretUnavailable, match=why):
            sources.find(name)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"postgres://user:{SECRET}@host",
        json.dumps({"password": 'quo"ted\\pass'}),
        repr("quo'ted pass\tword"),
        "line one of two",
        "a%2Fb%3Fc%20d",
    ],
)
def test_a_mask_finds_how_a_secret_is_written(text):
    masked = SecretMask(
        [SECRET, 'quo"ted\\pass', "quo'ted pass\tword", "line one of two\nline two of two", "a/b?c d"]
    ).mask_text(text)
    assert "***" in masked
    assert not any(part in masked for part in ("hunter2", "quo", "line one", "%2Fb"))


def test_a_secret_as_short_as_a_common_text_is_not_masked():
    assert SecretMask(["abc", ""]).mask_text("abc, and the alphabet") == "abc, and the alphabet"


def test_a_secret_that_was_cut_at_the_end_of_a_long_text_is_masked():
    mask = SecretMask([SECRET])
    filling = " " * CUT_FROM
    assert mask.mask_text(f"{SECRET[6:]}{filling}{SECRET[:9]}…") == f"***{filling}***…"
    assert mask.mask_text(f"{SECRET[6:]} short") == f"{SECRET[6:]} short"
    assert mask.mask_text(f"{SECRET[1:]}{filling}{SECRET[:-1]}") == f"***{filling}***"
    assert mask.mask_text(f"{SECRET[6:9]}-{filling}{SECRET[1:9]}") == f"{SECRET[6:9]}-{filling}{SECRET[1:9]}"
    long = SecretMask(["abab" * 900])
    assert long.mask_text(f"{'abab' * 800}b{filling}{'abab' * 800}a") == f"***b{filling}***"


@pytest.mark.parametrize(
    "name",
    [
        *("password", "DB_PASSWORD", "password2", "apiKey", "api-key", "GITHUB_TOKEN", "token", "client_secret"),
        *("AWS_SECRET_ACCESS_KEY", "private_key", "PGPASSWORD", "MYSQL_PWD", "credentials", "Authorization", "secrets"),
    ],
)
def test_a_name_that_looks_secret_is_masked(name):
    assert secret_values.mask({name: "x"}) == {name: "***"}
    assert secret_values.mask({name: {"user": "x"}}) == {name: "***"}


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "token_count", "PASSWORD_FILE", "key", "keyboard", "author", "secretary", "PWD", "passport", "pass"],
)
def test_a_name_that_only_contains_such_a_word_is_shown(name):
    assert secret_values.mask({name: "x"}) == {name: "x"}


def test_a_reference_is_shown_and_a_marked_value_is_not():
    value = {"password": NAMED, "iban": {"secret_value": "CH93"}, "token": None, "has_token": True, "list": [NAMED]}
    assert secret_values.mask(value) == {**value, "iban": {"secret_value": "***"}}


def test_an_argument_that_is_called_secret_is_no_reference():
    assert secret_values.mask({"kwargs": {"secret": "hunter2"}}) == {"kwargs": {"secret": "***"}}


@pytest.mark.parametrize(
    "wrong",
    [
        *({"secret": 5}, {"secret": "a", "more": 1}, {"secret": ""}, {"secret": "../etc/passwd"}, {"secret": ".x"}),
        *({"secret": "a" * 101}, {"secret_value": 5}, {"secret_value": ""}, {"secret_value": "x", "secret": "y"}),
        {"secret_value": "x" * (secret_values.LONGEST + 1)},
    ],
)
def test_an_object_that_is_only_similar_to_a_secret_is_a_problem(wrong):
    assert secret_values.find_problem({"deep": [wrong]})


def test_there_are_only_so_many_secrets():
    assert secret_values.find_problem([NAMED] * secret_values.SECRETS_LIMIT) is None
    assert (
        secret_values.find_problem([NAMED] * (secret_values.SECRETS_LIMIT + 1)) == "There are 101 secrets; at most 100."
    )


def test_a_value_that_comes_back_masked_is_a_problem_and_can_be_restored():
    stored = {
        "password": "x",
        "steps": [{"key": "a", "env": {"TOKEN": "y"}}, {"key": "b", "pin": {"secret_value": "z"}}],
    }
    shown = secret_values.mask(stored)
    assert secret_values.find_problem(shown)
    shown["steps"].reverse()
    assert secret_values.restore(shown, stored) == {**stored, "steps": stored["steps"][::-1]}
    assert secret_values.restore({"password": "***"}, {}) == {"password": "***"}
    assert secret_values.find_problem({"note": "***"}) is None


@pytest.mark.parametrize("end", ["_note", "_password"])
def test_a_long_name_is_judged_and_not_kept(end):
    name = "n" * 5000 + end
    holders = sys.getrefcount(name)
    assert (secret_values.mask({name: "x"})[name] == secret_values.MASK) is (end == "_password")
    assert sys.getrefcount(name) == holders


def test_a_line_of_the_log_masks_what_looks_secret_and_rows_of_the_database():
    row = 'CheckViolation: no\nDETAIL:  Failing row contains (1, {"password": "hunter2"}, (2)).'
    event = {"event": "x", "api_token": "hunter2", "job": {"password": "hunter2", "n": 1}, "exception": row}
    event["counts"] = {1: 2}
    shown = secret_values.mask_event(None, "info", event)
    assert shown["job"] == {"password": "***", "n": 1} and "Failing row contains (***)." in shown["exception"]
    assert "hunter2" not in str(shown)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"password": "hunter2", "n": 1}, "{'password': '***', 'n': 1}"),
        ({"n": 1, "api_key": 'it\'s "hunter2"'}, "{'n': 1, 'api_key': '***'}"),
        ({"token": 4711, "n": 1}, "{'token': '***', 'n': 1}"),
        ({"credentials": {"a": "hunter2", "b": "hunter2"}}, "{'credentials': '***'"),
        ({"deep": {"password": "hunter2"}, "n": 1}, "{'deep': {'password': '***'}, 'n': 1}"),
    ],
)
def test_the_repr_of_arguments_is_masked_where_a_name_looks_secret(arguments, shown):
    assert secret_values.mask_arguments(f"(1,) {arguments!r}") == f"(1,) {shown}"


def test_arguments_that_were_cut_show_no_part_of_a_secret():
    assert secret_values.mask_arguments("() {'n': 1, 'password': 'hunt") == "() {'n': 1, 'password': '***'"


@pytest.mark.parametrize("secret", ["p/a s+s&w=ö?<b>\"q' ~!*()#", "https://user:p%2Fw@example.org/a?b=c d", "a/b+c=="])
def test_a_secret_is_masked_however_an_address_json_or_html_writes_it(secret):
    in_json = json.dumps(secret)
    written = [
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        urlencode({"q": secret}),
        quote(secret, safe="!~*'()"),
        quote(secret, safe="!#$%&'()*+,/:;=?@[]~"),
        quote_plus(secret, safe="/"),
        re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")),
        in_json,
        json.dumps(secret, ensure_ascii=False),
        in_json.replace("/", r"\/"),
        in_json.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"),
        repr(secret),
        html.escape(secret),
    ]
    mask = SecretMask([secret])
    assert {mask.mask_text(text).strip("\"'").removeprefix("q=") for text in written} == {"***"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://user:hun@ter2@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("redis://:hunter2@host and amqp://a:hunter2@b//", "redis://:***@host and amqp://a:***@b//"),
        (r'"postgresql:\/\/user:hunter2@host\/db"', r'"postgresql:\/\/user:***@host\/db"'),
        ("to=postgresql%3A%2F%2Fuser%3Ahunter2%40host%2Fdb", "to=postgresql%3A%2F%2Fuser%3A***%40host%2Fdb"),
        ("http://host:8000/a@b http://[::1]:80 me@example.org", "http://host:8000/a@b http://[::1]:80 me@example.org"),
    ],
)
def test_a_log_line_has_no_password_of_an_address(text, shown):
    assert secret_values.mask_event(None, "", {"event": text, "n": 1}) == {"event": shown, "n": 1}
