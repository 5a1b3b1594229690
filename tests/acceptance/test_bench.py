"""A benchmark that is stopped leaves the machine as it was."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from controlplane.embedded.postgres import PostgresServer
from tests.support.processes import ROOT, eventually

NOTE = "postmaster.pid"
SHARED_MEMORY = 6
"""Line of that file with the key and the id of a segment."""


class Begun(NamedTuple):
    """Resources of a benchmark on the machine."""

    processes: list[psutil.Process]
    segment: str
    files: set[str]
    """Return the segments of shared memory."""
    folders: list[Path]


def list_begun(bench: psutil.Process, temporary: Path) -> Begun | None:
    """Return None until its web servers run."""
    own = [process for process in bench.children(recursive=True) if runs(process)]
    if not any("granian" in words(process) for process in own):
        return None
    [data_dir] = temporary.glob("controlplane-bench-*")
    home = PostgresServer(data_dir).home
    note = (home / NOTE).read_text().splitlines()
    postmaster = psutil.Process(int(note[0]))
    database = [postmaster, *postmaster.children(recursive=True)]
    files = {path for process in database for path in mapped(process) if path.startswith("/dev/shm/")}
    return Begun([*own, *database], note[SHARED_MEMORY].split()[1], files, [data_dir, home])


def mapped(process: psutil.Process) -> set[str]:
    """Return the files in the memory of a process, or none if it has just ended, as backends do all the time."""
    try:
        return {region.path.split()[0] for region in process.memory_maps()}
    except psutil.NoSuchProcess:
        return set()


def words(process: psutil.Process) -> list[str]:
    """Return the command line of a process, or an empty list if it has just ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def runs(process: psutil.Process) -> bool:
    """Return True if a process runs. A zombie that its parent has not waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.exhaustive
def test_a_stopped_benchmark_leaves_no_process_shared_memory_or_folder(tmp_path):
    command = [sys.executable, "-m", "tests.bench", "throughput"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE) as bench:
        begun = eventually(lambda: list_begun(psutil.Process(bench.pid), tmp_path), why="web servers are there")
        bench.terminate()
        _, output = bench.communicate(timeout=120)

    assert bench.returncode != 0
    eventually(lambda: not any(map(runs, begun.processes)), within=20, why=output)
    segments = [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()]
    assert begun.segment not in segments
    assert not [file for file in begun.files if Path(file).exists()]
    assert not [folder for folder in begun.folders if folder.exists()]
    assert not list(tmp_path.iterdir())
