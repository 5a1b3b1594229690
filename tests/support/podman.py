"""Real containers of podman in a separate store, from an image with only a static busybox.

They need kernel features and rights that not every machine gives, so these tests may be skipped.
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
"""Runtimes to try in this order. The kernel's control groups decide which one works."""


LIMIT = 4096
"""Limit of files and processes in a container; -1 means unlimited."""


class Podman:
    """Podman with its own store. In the environment `environment`, an agent finds it under the name `docker`."""

    def __init__(self, folder: Path) -> None:
        self.program, self._busybox = present("podman"), present("busybox")
        (folder / "bin").mkdir()
        called = folder / "bin" / "docker"  # a script, as distributions install it
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
        """Build the image. Skip the test if this machine cannot run containers."""
        complaints = [complaint for runtime in RUNTIMES if (complaint := self._try(runtime))]
        if len(complaints) == len(RUNTIMES):
            pytest.skip(f"no container runs here: {'; '.join(complaints)}")

    def call(self, *arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, **self.environment}
        return subprocess.run([self.program, *arguments], env=environment, input=data, capture_output=True, timeout=120)

    def names(self) -> list[str]:
        """Return the names of all containers."""
        return self.call("ps", "--all", "--format", "{{.Names}}").stdout.decode().split()

    def close(self) -> None:
        self.call("rm", "--all", "--force", "--time=0")

    def _try(self, runtime: str) -> str:
        """Return podman's error, or an empty text if the image exists and runs."""
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
    """Return the path of the program. Skip the test if it is not installed."""
    return shutil.which(program) or pytest.skip(f"{program} is not installed")


def ulimits() -> str:
    """Return limits that this process may set. Podman's defaults may be higher."""
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
