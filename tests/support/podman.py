"""Real containers of podman, in a store of their own, of an image that is made of a static busybox alone.

Whether they run is for the kernel to say, and for what this process may do: so they are required nowhere.
"""

import io
import os
import resource
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

IMAGE = "localhost/controlplane-test"
APPLETS = ("cat", "echo", "env", "id", "ls", "mv", "sh", "sleep", "true")
RUNTIMES = ("crun", "runc")
"""The first by which a container runs: which one does is for the kernel's control groups to say."""


LIMIT = 4096
"""Of files and processes in a container; what is not limited is -1."""


class Podman:
    """`environment`: by which an agent finds this podman, as `docker`, whatever else there is on this machine."""

    def __init__(self, folder: Path) -> None:
        self.program, self._busybox = present("podman"), present("busybox")
        (folder / "bin").mkdir()
        called = folder / "bin" / "docker"  # a script, as distributions have it
        called.write_text(f'#!/bin/sh\nexec {self.program} "$@"\n')
        called.chmod(0o755)
        self._containers, storage = folder / "containers.conf", folder / "storage.conf"
        places = f'graphroot = "{folder / "store"}"\nrunroot = "{folder / "run"}"\n'
        storage.write_text(f'[storage]\ndriver = "vfs"\n{places}')
        self.environment = {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CONTAINERS_CONF": str(self._containers),
            "CONTAINERS_STORAGE_CONF": str(storage),
        }

    def start(self) -> None:
        """Skips the test where this machine runs no containers."""
        complaints = [complaint for runtime in RUNTIMES if (complaint := self._try(runtime))]
        if len(complaints) == len(RUNTIMES):
            pytest.skip(f"no container runs here: {'; '.join(complaints)}")

    def call(self, *arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, **self.environment}
        return subprocess.run([self.program, *arguments], env=environment, input=data, capture_output=True, timeout=120)

    def names(self) -> list[str]:
        """Of all containers."""
        return self.call("ps", "--all", "--format", "{{.Names}}").stdout.decode().split()

    def close(self) -> None:
        self.call("rm", "--all", "--force", "--time=0")

    def _try(self, runtime: str) -> str:
        """What podman complains of; nothing: an image is there, and runs."""
        if shutil.which(runtime) is None:
            return f"there is no {runtime}"
        self._containers.write_text(
            f'[containers]\nnetns = "host"\ndefault_ulimits = {ulimits()}\nlog_driver = "k8s-file"\n'
            f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        made = self.call("import", "--change=USER 1000", "-", IMAGE, data=root_file_system(Path(self._busybox)))
        done = made if made.returncode else self.call("run", "--rm", IMAGE, "/bin/true")
        return done.stderr.decode(errors="replace").strip()[-300:] if done.returncode else ""


def present(program: str) -> str:
    """Where it is. Skips the test where it is not."""
    return shutil.which(program) or pytest.skip(f"{program} is not installed")


def ulimits() -> str:
    """No more than this process may have: podman's own are more, where it may not raise them."""
    limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    most = {name: min(resource.getrlimit(number)[1] % 2**63, LIMIT) for name, number in limits.items()}
    return str([f"{name}={most[name]}:{most[name]}" for name in limits]).replace("'", '"')


def root_file_system(busybox: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder in ("bin", "dev", "etc", "proc", "run", "sys", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add(busybox.resolve(), "bin/busybox")
        for applet in APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return packed.getvalue()
