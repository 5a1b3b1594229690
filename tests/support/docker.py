#!/usr/bin/env python3
"""Replacement for docker. It records each call in CALLS.

A container is a file in CONTAINERS with the options of `run`.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

CALLS, CONTAINERS = Path(os.environ["CALLS"]), Path(os.environ["CONTAINERS"])
WITH_VALUE = ("--name", "--label", "--env", "--volume")


def run(arguments: list[str]) -> int:
    options: dict[str, list[str]] = {}
    while arguments[0].startswith("--"):
        option, _, value = arguments.pop(0).partition("=")
        options.setdefault(option, []).append(arguments.pop(0) if option in WITH_VALUE else value)
    image, *command = arguments
    if image == "missing":
        sys.stderr.write("no such image: missing\n")
        return 125
    (name,) = options["--name"]
    (CONTAINERS / name).write_text(json.dumps(options))
    (file,) = options["--env-file"]
    given = dict(line.split("=", 1) for line in Path(file).read_text().split("\n") if line)
    given |= {name: os.environ[name] for name in options.get("--env", [])}
    for volume in options.get("--volume", []):
        outside, inside, _ = volume.split(":")
        given = {name: value.replace(inside, outside) for name, value in given.items()}
    argv = [*options.get("--entrypoint", []), *command] or ["echo", "by itself"]
    status = subprocess.run(argv, env={"PATH": "/bin:/usr/bin", **given}).returncode
    ended = {"status": ["Exited 1 second ago"], "killed": ["true" if image == "hungry" else "false"]}
    (CONTAINERS / name).write_text(json.dumps({**options, **ended}))
    return status


def inspect(name: str) -> str:
    """Return two words: true if the kernel killed the code, and the memory limit in bytes."""
    options = json.loads((CONTAINERS / name).read_text())
    megabytes = options.get("--memory", ["0M"])[0].removesuffix("M")
    return f"{options.get('killed', ['false'])[0]} {int(megabytes) * 1024**2}\n"


def list_containers(arguments: list[str]) -> str:
    conditions = [arguments[index + 1] for index, word in enumerate(arguments) if word == "--filter"]
    lines = []
    for file in CONTAINERS.iterdir():
        options = json.loads(file.read_text())
        if all(agrees(file.name, options, condition) for condition in conditions):
            lines.append(f"{file.name}\n" if "--quiet" in arguments else f"{file.name} {options['status'][0]}\n")
    return "".join(lines)


def agrees(name: str, options: dict[str, list[str]], condition: str) -> bool:
    what, _, value = condition.partition("=")
    if what == "name":
        return re.search(value, name) is not None
    if what == "status":
        return options.get("status", ["Up"])[0].lower().startswith(value)
    return any(value in (label, label.partition("=")[0]) for label in options.get("--label", []))


def main() -> int:
    call, *arguments = sys.argv[1:]
    with CALLS.open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    if call in ("run", "version") and (CONTAINERS.parent / "away").exists():
        sys.stderr.write("docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.\n")
        return 125 if call == "run" else 1
    if call == "run":
        return run(arguments)
    if call == "ps":
        sys.stdout.write(list_containers(arguments))
    if call == "container":
        sys.stdout.write(inspect(arguments[-1]))
    if call == "rm":
        while (CONTAINERS.parent / "busy").exists():
            time.sleep(0.05)
        for name in (argument for argument in arguments if not argument.startswith("--")):
            (CONTAINERS / name).unlink()
            sys.stdout.write(f"{name}\n")
    return 0


sys.exit(main())
