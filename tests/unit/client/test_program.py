"""Program `controlplane`: commands of the API client, and commands of the control plane itself."""

import os
import subprocess
import sys

import pytest

from controlplane import __main__ as program
from controlplane.agent.__main__ import main as start_agent
from controlplane.agent.version import VERSION
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
    """Record the command lines that Django's management gets."""
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


@pytest.mark.parametrize(
    ("words", "extra"),
    [(["migrate"], "server"), (["standalone", "--demo"], "standalone"), (["manage", "drain"], "server")],
)
def test_without_django_a_command_names_the_extra_to_install(words, extra):
    without = "import sys; sys.modules['django'] = None; from controlplane.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", without, *words], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"pip install 'controlplane[{extra}]'" in done.stderr and "\n" not in done.stderr.strip()


def test_without_django_the_client_works():
    without = "import sys; sys.modules['django'] = None; from controlplane.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", without, "jobs", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "jobs, latest first" in done.stdout


@pytest.mark.parametrize("words", [["job-list"], ["manage", "migrat"], ["nonsense", "--data-dir", "/nowhere"]])
def test_an_unknown_command_is_one_sentence_with_and_without_a_database(tmp_path, words):
    done = run_program(*words, CONTROLPLANE_DATA_DIR=str(tmp_path / "none"), DATABASE_URL="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("There is no command `") and "`controlplane --help`" in done.stderr
    assert ("Did you mean `" in done.stderr) == (words != ["nonsense", "--data-dir", "/nowhere"])
    assert "\n" not in done.stderr.strip() and not any(tmp_path.iterdir())


def test_an_option_that_there_is_not_is_no_matter_of_a_database(run):
    code, _, err = run("--nonsense")
    assert code == 2 and "controlplane: error:" in err


def test_static_files_are_collected_where_a_folder_is_named(tmp_path):
    done = run_program("collectstatic", "--noinput", CONTROLPLANE_STATIC_ROOT="")
    assert done.returncode == 1 and done.stderr.startswith("Set CONTROLPLANE_STATIC_ROOT")
    assert "\n" not in done.stderr.strip()
    assert run_program("collectstatic", "--noinput", CONTROLPLANE_STATIC_ROOT=str(tmp_path)).returncode == 0
    assert (tmp_path / "controlplane" / "instance.css").exists()


def test_each_program_prints_its_version(run, capsys):
    code, out, _ = run("--version")
    assert (code, out) == (0, f"controlplane {VERSION}\n")
    with pytest.raises(SystemExit):
        start_agent(["--version"])
    assert capsys.readouterr().out == f"controlplane-agent {VERSION}\n"


def run_program(*words, **environment):
    program = [sys.executable, "-m", "controlplane", *words]
    return subprocess.run(
        program, cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "SECRET_KEY": "of this installation" * 2, **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["standalone", "--nonsense"],
        ["standalone", "--port", "0"],
        ["migrate", "--nonsense"],
        ["migrate", "--verbosity", "9"],
    ],
)
def test_a_mistyped_option_is_refused_before_a_data_directory_is_made_for_it(tmp_path, words):
    missing = tmp_path / "new"
    done = subprocess.run(
        [sys.executable, "-m", "controlplane", *words, "--data-dir", missing],
        cwd=ROOT, env={**os.environ, "DATABASE_URL": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, missing.exists()) == (2, False), done.stderr
    assert words[1] in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["standalone", "--port", "8001"], ["migrate", "jobs", "--no-input", "--plan"]])
def test_settings_are_not_read_before_there_is_the_data_directory_that_they_need(words):
    code = (
        "from controlplane.__main__ import refuse_unknown; from django.conf import settings; from django.db import"
        f" connections; refuse_unknown(['controlplane', *{words}]); assert not settings.configured;"
        " assert connections['default'].vendor == 'postgresql'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
