"""The data directory is where its user expects it, and only commands that start an installation create one."""

from pathlib import Path

import pytest

from controlplane.agent.processes import environment
from controlplane.embedded import data_dir, postgres, secret_key


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("CONTROLPLANE_DATA_DIR", "DATABASE_URL", "SECRET_KEY", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(environment, "sources", list)


def test_a_clone_has_one_of_its_own_from_whatever_directory_it_is_used():
    assert data_dir.find_data_dir() == Path(__file__).resolve().parents[2] / "var"


def test_what_is_installed_uses_the_users_own(home, installed, monkeypatch):
    assert data_dir.find_data_dir() == home / ".local" / "share" / "controlplane"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    assert data_dir.find_data_dir() == home / "data" / "controlplane"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the specification ignores relative paths
    assert data_dir.find_data_dir() == home / ".local" / "share" / "controlplane"


@pytest.mark.parametrize("words", [["--data-dir", "there"], ["--data-dir=there"]])
def test_every_command_takes_another_and_django_does_not_see_it(home, words):
    argv = ["controlplane", "create_token", *words, "--role", "client"]
    assert data_dir.take_option(argv) == ["controlplane", "create_token", "--role", "client"]
    assert data_dir.find_data_dir() == home / "there"


def test_what_follows_two_dashes_is_left_alone(home):
    argv = ["controlplane", "shell", "--", "--data-dir", "there"]
    assert data_dir.take_option(argv) == argv
    assert data_dir.find_data_dir() != home / "there"


@pytest.mark.parametrize("words", [["--data-dir"], ["--data-dir="]])
def test_the_option_without_a_directory_is_refused(words):
    with pytest.raises(SystemExit, match="--data-dir DIR"):
        data_dir.take_option(["controlplane", "migrate", *words])


@pytest.mark.parametrize("command", ["create_token", "shell", "check_liveness"])
def test_other_commands_create_no_directory_and_print_what_to_do(home, installed, command):
    with (
        pytest.raises(SystemExit, match="Run `standalone` or `migrate` first"),
        postgres.database_for_command(["controlplane", command]),
    ):
        pass
    assert secret_key.load_or_create_key(data_dir.find_data_dir()) == ""
    assert list(home.iterdir()) == []


def test_a_directory_without_a_database_gets_none_by_such_a_command_either(home, installed):
    directory = data_dir.prepare_for("migrate")
    with (
        pytest.raises(SystemExit, match="There is no database in"),
        postgres.database_for_command(["controlplane", "create_token"]),
    ):
        pass
    assert [path for path in directory.iterdir() if not path.name.endswith("lock")] == []


def test_a_given_database_and_key_need_no_directory(home, installed, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/db")
    monkeypatch.setenv("SECRET_KEY", "of this installation" * 2)
    with postgres.database_for_command(["controlplane", "migrate"]):
        pass
    assert list(home.iterdir()) == []


def test_of_a_given_database_alone_the_first_migration_makes_the_key(home, installed, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/db")
    with postgres.database_for_command(["controlplane", "migrate"]):
        assert len(secret_key.load_or_create_key(data_dir.find_data_dir())) > 40


def test_a_directory_that_cannot_be_made_is_one_sentence(home, installed, monkeypatch):
    (home / "file").touch()
    monkeypatch.setenv("CONTROLPLANE_DATA_DIR", str(home / "file" / "var"))
    with pytest.raises(SystemExit, match="cannot be used: Not a directory") as refused:
        data_dir.prepare_for("standalone")
    assert "\n" not in str(refused.value)
