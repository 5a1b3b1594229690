"""The program `controlplane`: which of its words ask over the API, and which are the control plane's own commands."""

import subprocess
import sys

import pytest

from controlplane import __main__ as program
from tests.support.processes import ROOT
from tests.support.scripted import Say


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["controlplane", *words])
        with pytest.raises(SystemExit) as ended:
            program.main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def managed(monkeypatch):
    """What was handed to the management."""
    handed = []
    monkeypatch.setattr(program, "manage", lambda argv: handed.append(argv) or sys.exit(0))
    return handed


def test_a_command_of_the_client_asks_over_the_api(plane, run, monkeypatch):
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "secret")
    plane.answers["GET", "/jobs"] = [Say(200, {"items": [], "next": None})] * 2
    assert run("jobs", "--url", plane.url, "--json")[0] == 0
    assert run("--url", plane.url, "jobs")[0] == 0
    assert [call.path for call in plane.calls] == ["/jobs"] * 2


@pytest.mark.parametrize("words", [["migrate", "--plan"], ["standalone", "--demo"], ["create_token"], ["help"]])
def test_any_other_word_goes_to_the_management(run, managed, words):
    run(*words)
    assert managed == [["controlplane", *words]]


def test_of_a_command_that_both_have_the_managements_is_asked_for_by_name(run, managed):
    assert run("drain", "worker-1")[0] == 2, "the client's needs a note"
    run("manage", "drain", "worker-1")
    assert managed == [["controlplane", "drain", "worker-1"]]


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_names_the_commands_of_both(run, words):
    code, out, _ = run(*words)
    assert code == 0 and all(name in out for name in ("usage: controlplane ", "submit", "top", "standalone", "migrate"))


@pytest.mark.parametrize("words", [["migrate"], ["standalone", "--demo"], ["manage", "drain"]])
def test_without_django_a_command_of_the_control_plane_is_one_sentence_that_says_what_to_install(words):
    without = "import sys; sys.modules['django'] = None; from controlplane.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", without, *words], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'controlplane[server]'" in done.stderr and "\n" not in done.stderr.strip()


def test_without_django_the_client_works():
    without = "import sys; sys.modules['django'] = None; from controlplane.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", without, "jobs", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "jobs, latest first" in done.stdout
