#!/usr/bin/env python3
"""Stands in for docker: notes each call in CALLS, and a container is a file in CONTAINERS with what `run` was told."""

import json
import os
import re
import subprocess
import sys
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
    given = {text.partition("=")[0]: text.partition("=")[2] or os.environ[text] for text in options.get("--env", [])}
    for volume in options.get("--volume", []):
        outside, inside, _ = volume.split(":")
        given = {name: value.replace(inside, outside) for name, value in given.items()}
    argv = [*options.get("--entrypoint", []), *command] or ["echo", "by itself"]
    status = subprocess.run(argv, env={"PATH": "/bin:/usr/bin", **given}).returncode
    (CONTAINERS / name).unlink(missing_ok=True)
    return status


def select_containers(condition: str) -> list[str]:
    what, _, value = condition.partition("=")
    if what == "name":
        return [file.name for file in CONTAINERS.iterdir() if re.search(value, file.name)]
    return [file.name for file in CONTAINERS.iterdir() if value in json.loads(file.read_text())["--label"]]


def main() -> int:
    call, *arguments = sys.argv[1:]
    with CALLS.open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    if call == "run":
        return run(arguments)
    if call == "ps":
        sys.stdout.write("".join(f"{name}\n" for name in select_containers(arguments[-1])))
    if call == "rm":
        for name in arguments[1:]:
            (CONTAINERS / name).unlink()
            sys.stdout.write(f"{name}\n")
    return 0


sys.exit(main())
