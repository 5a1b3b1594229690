"""Command line on a terminal: the screen of `top`, `--watch`, short ids and completion."""

import errno
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from contextlib import contextmanager

import pytest

from controlplane.client import watching
from controlplane.client.__main__ import main
from tests.support.scripted import Say
from tests.support.standin import ROOT
from tests.unit.client.test_command import ID, INSTANCE, JOB, OTHER, SERVER, listed

ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX^_].*?\x1b\\|\][^\x07]*\x07|.)", re.DOTALL)


@pytest.fixture
def run(plane, pauses, monkeypatch, capsys):
    monkeypatch.setenv("CONTROLPLANE_URL", plane.url)
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "secret")

    def run(*words):
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def read_until(terminal: int, words: str, seen: str = "") -> str:
    """Read from a terminal until it has shown these words. Return all text so far."""
    until = time.monotonic() + 60
    while words not in ESCAPE.sub("", seen):
        assert time.monotonic() < until and select.select([terminal], [], [], 60)[0], seen
        text = read_terminal(terminal)
        assert text, f"the program ended, and had shown: {seen}"
        seen += text
    return seen


def read_terminal(terminal: int) -> str:
    """Return the next output on a terminal. The empty text is its end, for which Linux raises EIO."""
    try:
        return os.read(terminal, 65536).decode(errors="replace")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return ""


@contextmanager
def on_a_terminal(plane, *words: str):
    """Run a command on a terminal with 30 lines of 120 characters. Yield its process and the other end."""
    other_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (30, 120))
    environment = {**os.environ, "CONTROLPLANE_URL": plane.url, "CONTROLPLANE_TOKEN": "secret"}
    environment["TERM"] = "xterm-256color"
    command = [sys.executable, "-m", "controlplane.client", *words]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, cwd=ROOT)
    os.close(terminal)
    try:
        yield process, other_end
    finally:
        process.kill()
        process.wait()
        os.close(other_end)


def test_top_takes_the_whole_screen_shows_its_keys_and_ends_with_0(plane):
    plane.answers["GET", "/instance"] = [Say(200, INSTANCE)]
    plane.answers["GET", "/servers"] = [listed(SERVER)]
    plane.answers["GET", "/jobs"] = [listed({**JOB, "name": "[b]report[/b]"})]
    with on_a_terminal(plane, "top", "--every", "0.2") as (process, terminal):
        seen = read_until(terminal, "worker-1")
        assert "\x1b[?1049h" in seen, "the other screen of the terminal"
        shown = ESCAPE.sub("", read_until(terminal, "refresh", seen))
        assert "q quit" in re.sub(r"\s+", " ", shown) and "1 of 2 servers alive" in shown
        os.write(terminal, b"j")
        read_until(terminal, "[b]report[/b]")
        os.write(terminal, b"q")
        while read_terminal(terminal):
            pass
        assert process.wait(60) == 0


def test_a_watched_list_is_shown_again_until_it_is_interrupted(plane, run, monkeypatch):
    plane.answers["GET", "/jobs"] = [listed(JOB)]
    waits = []

    def pause(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", pause)
    code, out, _ = run("jobs", "--watch")
    assert (code, out.count(ID), waits) == (130, 3, [2.0] * 3)
    waits[:] = [0, 0]
    run("jobs", "--watch", "1m")
    assert waits[-1] == 60


def test_short_ids_work_for_servers_holds_triggers_and_items_of_bulk_actions(plane, run):
    plane.answers["GET", "/servers"] = lambda call: listed() if "search" in call.query else listed(SERVER)
    plane.answers["POST", f"/servers/{ID}/cordon"] = [Say(200, {**SERVER, "cordoned": True})]
    assert run("cordon", ID[-12:], "--note", "n")[0] == 0
    plane.answers["GET", "/holds"] = [listed({"id": OTHER})]
    plane.answers["DELETE", f"/holds/{OTHER}"] = [Say(204, None)]
    assert run("release-hold", OTHER[-12:])[0] == 0
    plane.answers["GET", "/triggers"] = [listed({"id": OTHER})]
    plane.answers["GET", "/executions"] = [listed()]
    assert run("executions", "--trigger", OTHER[-12:])[0] == 0
    assert plane.calls[-1].query["trigger"] == [OTHER]
    plane.answers["GET", "/jobs"] = [listed(JOB)]
    plane.answers["POST", "/batches"] = [Say(201, {"id": OTHER})]
    assert run("begin-batch", "cancel_job", ID[-12:], "--note", "n")[0] == 0
    assert plane.calls[-1].body["ids"] == [ID]


def complete(script: str, *words: str) -> list[str]:
    quoted = " ".join(f'"{word}"' for word in words)
    test = f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _controlplane; echo "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", test], capture_output=True, text=True, check=True).stdout.split()


def test_a_shell_completes_commands_options_and_choices(run, monkeypatch):
    monkeypatch.delenv("CONTROLPLANE_URL")
    code, script, _ = run("completion", "bash")
    assert code == 0
    assert complete(script, "controlplane", "jo") == ["job", "jobs"]
    assert complete(script, "controlplane", "--url", "x", "jobs", "--wa") == ["--watch"]
    assert complete(script, "controlplane", "submit", "--unmatched", "") == ["fail", "wait"]
    assert complete(script, "controlplane", "maintenance", "e") == ["enter", "exit"]
    zsh = run("completion", "zsh")[1]
    assert zsh.startswith("autoload -Uz bashcompinit") and script in zsh
    with pytest.raises(SystemExit):
        run("completion", "fish")


def test_without_textual_top_prints_its_state_as_before(plane, run, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("controlplane.client.top.find_spec", lambda name: None)
    plane.answers["GET", "/instance"] = [Say(200, INSTANCE)]
    monkeypatch.setattr("controlplane.client.top.time.sleep", lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt))
    code, out, _ = run("top")
    assert code == 130 and "2 WORKER RUNNING" in out
