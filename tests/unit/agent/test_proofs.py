"""The proof that nothing of a server runs any more: its file, its markers, and the code that carries a mark."""

from __future__ import annotations

import os
import subprocess
import time
import uuid

import pytest

from controlplane.agent.fence import read_uptime
from controlplane.agent.processes.server_file import (
    ALL_CODE,
    DRAFT_LOCKED_WITHIN,
    ServerFile,
    clear_drafts,
    lock_draft,
    marker_path,
    markers_of,
    name_of,
)
from controlplane.agent.proofs.ending import NotProved, locked, prove_end

MARK = "CODE_OF"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "servers"


@pytest.fixture
def marked():
    """Return a running process with a mark, and the mark."""
    mark = f"{MARK}={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, name: value})
    yield process, mark
    process.kill()
    process.wait()


def publish(folder, server="server", mark="CODE_OF=nobody", lock=None):
    lock = lock_draft(folder, "worker") if lock is None else lock
    return ServerFile.publish(
        folder, lock, server, str(uuid.uuid4()), "http://plane", "token", ends_namespace=False,
        marker={"began": read_uptime(), "mark": mark},
    )  # fmt: skip


def prove(file, spare=()):
    with locked(file.path) as descriptor:
        return prove_end(file.path, descriptor, spare)


def test_a_held_lock_proves_nothing(folder):
    file = publish(folder)
    with pytest.raises(NotProved):
        prove(file)


def test_code_with_the_mark_of_its_server_is_killed_before_the_proof(folder, marked):
    process, mark = marked
    file = publish(folder, mark=mark)
    os.close(file.lock)
    assert prove(file).record.server == "server"
    assert process.wait(5) < 0
    assert markers_of(file.path) == []


def test_a_process_that_runs_another_program_since_is_spared(folder, marked):
    process, mark = marked
    file = publish(folder, mark=mark)
    os.close(file.lock)
    assert prove(file, spare={process.pid})
    assert process.poll() is None


def test_a_marker_without_its_mark_proves_nothing(folder, marked):
    process, mark = marked
    file = publish(folder, mark=mark)
    os.close(file.lock)
    marker_path(file.path, ALL_CODE).write_text("")
    with pytest.raises(NotProved) as found:
        prove(file)
    assert found.value.is_final
    assert process.poll() is None and markers_of(file.path)


def test_a_file_moves_to_the_next_server_of_its_worker(folder):
    first = publish(folder, "first")
    second = publish(folder, "second", lock=first.lock)
    assert not first.path.exists() and name_of(second.lock) == second.path
    os.close(second.lock)
    assert prove(second).record.server == "second"


def test_drafts_of_dead_processes_are_removed_and_others_stay(folder):
    living, dead, new = (lock_draft(folder, name) for name in ("living", "dead", "new"))
    old = time.time() - DRAFT_LOCKED_WITHIN - 1
    for lock in (living, dead):
        os.utime(lock, (old, old))
    names = {lock: name_of(lock) for lock in (living, dead, new)}
    for lock in (dead, new):
        os.close(lock)
    clear_drafts(folder)
    assert sorted(folder.iterdir()) == sorted([names[living], names[new]])
    os.close(living)
