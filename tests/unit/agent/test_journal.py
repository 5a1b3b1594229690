"""The journal of an agent: it never shows code that began as not begun, and no error of the disk loses an end."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.agent.api import journal as module
from controlplane.agent.api.client import AgentClient
from controlplane.agent.api.journal import Journal, read_journal
from controlplane.agent.api.registration import RegisteredServer, ServerConfig

CONFIG = ServerConfig(1.0, 3.0, 1.0, 1.0, 1.0, "IMMEDIATELY")
COMPLETED = {"attempt": "ended", "event": "COMPLETED"}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Return a journal with three attempts: one waits, one has begun, and one has ended."""
    server = RegisteredServer(
        AgentClient("http://plane"), "s", "token-of-server", CONFIG, None, 0.0, instance_id="one",
        registration_token="token-of-fleet",
    )  # fmt: skip
    one = Journal()
    one.open(tmp_path, server)
    for attempt in ("waits", "begun", "ended"):
        one.note_waiting(attempt)
    assert one.note_begun("begun") and one.note_begun("ended")
    one.note_ended("ended", [COMPLETED])
    yield one
    one.close(is_needed=True)


def path_of(tmp_path: Path) -> Path:
    return tmp_path / "s.journal"


def die(journal: Journal) -> None:
    """End as a killed agent does: the kernel closes the file."""
    journal.close(is_needed=True)


def events(path: Path) -> dict[str, str]:
    kept = read_journal(path)
    assert kept is not None, "its agent lives"
    return {report["attempt"]: report["event"] for report in kept["reports"]}


def descriptor_of(path: Path) -> int:
    found = [name for name in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{name}") == str(path)]
    return int(found[0])


@pytest.fixture
def break_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Make calls on files of the test fail: `break_disk("write", "ftruncate")`."""

    def is_ours(place: Any) -> bool:
        name = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.fspath(place)
        return str(name).startswith(str(tmp_path))

    def fail(call: str, number: int = errno.EIO) -> None:
        real = getattr(os, call)

        def broken(place: Any, *more: Any, **options: Any) -> Any:
            if is_ours(place):
                raise OSError(number, os.strerror(number))
            return real(place, *more, **options)

        monkeypatch.setattr(os, call, broken)

    def break_all(*calls: str, number: int = errno.EIO) -> None:
        for call in calls:
            fail(call, number)

    return break_all


def test_the_journal_of_a_living_agent_is_left_alone(journal, tmp_path):
    assert read_journal(path_of(tmp_path)) is None


def test_what_had_not_begun_and_what_had_ended_is_reported(journal, tmp_path):
    journal.note_waiting("forgotten")
    journal.forget("forgotten")
    die(journal)
    kept = read_journal(path_of(tmp_path))
    assert kept is not None
    assert kept["reports"] == [
        COMPLETED,
        {"attempt": "waits", "event": "RELEASED", "reason": "its agent ended before its code began", "begun": False},
    ]


def test_the_journal_is_private_and_holds_no_token(journal, tmp_path):
    path = path_of(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "token-of" not in path.read_text()


@pytest.mark.parametrize("line", [b'{"waits": "beg', b'{"waits": "beg\n', b"\0\0\0\n", b"[1]\n", b'"begun"\n'])
def test_a_line_that_cannot_be_read_may_mean_that_an_attempt_has_begun(journal, tmp_path, line):
    die(journal)
    with path_of(tmp_path).open("ab") as file:
        file.write(line)
    assert events(path_of(tmp_path)) == {"ended": "COMPLETED"}


def test_after_a_reboot_only_ends_are_reported(journal, tmp_path, monkeypatch):
    die(journal)
    monkeypatch.setattr(module, "read_boot", lambda: "another boot")
    assert events(path_of(tmp_path)) == {"ended": "COMPLETED"}


def test_a_system_without_boot_ids_reports_only_ends(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "read_boot", lambda: "")
    journal._rewrite()
    die(journal)
    assert events(path_of(tmp_path)) == {"ended": "COMPLETED"}


def test_a_copy_of_a_journal_shows_only_ends(journal, tmp_path):
    shutil.copy(path_of(tmp_path), tmp_path / "copy.journal")
    assert events(tmp_path / "copy.journal") == {"ended": "COMPLETED"}


def test_a_reader_that_opened_the_file_before_it_was_written_again_reads_nothing(journal, tmp_path, monkeypatch):
    real = fcntl.flock

    def write_again_first(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        journal._rewrite()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", write_again_first)
    assert read_journal(path_of(tmp_path)) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_of_the_disk_leaves_nothing_to_read_and_keeps_the_lock(journal, tmp_path, break_disk, number):
    with path_of(tmp_path).open("rb") as reader:
        break_disk("write", number=number)
        assert journal.note_begun("waits"), "it may begin: no file shows it as waiting"
        with pytest.raises(BlockingIOError):
            fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert reader.read() == b""
    assert not path_of(tmp_path).exists()


def test_a_short_write_is_continued_and_its_error_noticed(journal, tmp_path, monkeypatch):
    real = os.write
    written: list[int] = []

    def write_a_little(file: int, data: Any) -> int:
        if written:
            raise OSError(errno.ENOSPC, "full")
        written.append(real(file, bytes(data)[:5]))
        return written[0]

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_a_little)
        journal.note_begun("waits")
    assert written and not path_of(tmp_path).exists()


def test_an_attempt_shown_as_waiting_may_not_begin_if_the_disk_takes_no_change(journal, tmp_path, break_disk):
    break_disk("write", "ftruncate", "unlink")
    assert not journal.note_begun("waits")
    assert journal.note_begun("another"), "no file shows it"
    assert read_journal(path_of(tmp_path)) is None, "its agent lives"
    die(journal)
    assert events(path_of(tmp_path)) == {"waits": "RELEASED", "ended": "COMPLETED"}, "which is still true"


def test_an_error_while_it_is_written_again_keeps_the_present_file(journal, tmp_path, break_disk, monkeypatch):
    monkeypatch.setattr(journal, "_limit", 0)
    with monkeypatch.context():
        break_disk("rename", number=errno.ENOSPC)
        journal.note_ended("begun", [{"attempt": "begun", "event": "FAILED"}])
    with open(os.devnull) as other:  # it may have a number that was closed twice
        journal.note_begun("waits")
        assert os.fstat(other.fileno())
    assert read_journal(path_of(tmp_path)) is None, "its agent lives"
    die(journal)
    assert events(path_of(tmp_path)) == {"begun": "FAILED", "ended": "COMPLETED"}


def test_a_closed_file_keeps_no_end_from_being_reported(journal, tmp_path):
    os.close(descriptor_of(path_of(tmp_path)))
    journal.note_ended("begun", [{"attempt": "begun", "event": "FAILED"}])
    journal.forget("ended")
    assert not path_of(tmp_path).exists(), "nobody reads its old state"
    journal.close(is_needed=False)


def test_an_agent_without_a_state_folder_works_without_a_journal(tmp_path):
    (tmp_path / "file").touch()
    one = Journal()
    server = RegisteredServer(AgentClient("http://plane"), "s", "t", CONFIG, None, 0.0)
    one.open(tmp_path / "file" / "state", server)
    one.note_waiting("a")
    assert one.note_begun("a")
    one.note_ended("a", [COMPLETED])
    one.close(is_needed=True)


def test_a_journal_that_grows_keeps_only_what_is_needed(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REWRITTEN", 0)
    journal._rewrite()
    for number in range(1000):
        journal.note_waiting(str(number))
        journal.forget(str(number))
    assert path_of(tmp_path).stat().st_size < 4000
    die(journal)
    assert events(path_of(tmp_path)) == {"waits": "RELEASED", "ended": "COMPLETED"}
