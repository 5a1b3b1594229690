"""Run a pod from the manifest on stdin, until it ends: `python -m controlplane.agent.runners.pod_child KUBECTL NAME`.

Write the output of the pod, without its report lines (report_lines.py). Exit with the status of the pod, or with 125 if
no pod could start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controlplane.agent.from_code.report_lines import FILES, ReportLines

LOOK_INTERVAL = 0.5  # seconds
NOT_STARTED = 125
CHUNK = 65536
MISSED_LOOKS = 30  # looks in a row without an answer


def main() -> int:
    kubectl, name = sys.argv[1:3]
    manifest = sys.stdin.buffer.read()
    try:
        created = subprocess.run([kubectl, "create", "--filename=-"], input=manifest, stdout=subprocess.PIPE)
    except OSError as error:
        complain(f"{kubectl} cannot be run: {error}")
        return NOT_STARTED
    if created.returncode:
        return NOT_STARTED
    output = ReportLines(
        sys.stdout.buffer, {name: Path(os.environ[name]) for name in FILES.values() if name in os.environ}
    )
    followed_from, missed = None, 0
    while True:
        pod = read_pod(kubectl, name)
        phase = (pod or {}).get("status", {}).get("phase")
        missed = missed + 1 if pod is None else 0
        if missed > MISSED_LOOKS:
            complain(f"kubectl did not return pod {name} {MISSED_LOOKS} times in a row")
            return 1
        if phase in ("Succeeded", "Failed") and pod:
            if followed_from is None:
                copy_logs(output, [kubectl, "logs", name])
            break
        if phase == "Running":
            # If the connection ended before the pod did, continue from there.
            since: list[str] = [f"--since-time={followed_from}"] if followed_from else []
            copy_logs(output, [kubectl, "logs", "--follow", *since, name])
            followed_from = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        time.sleep(LOOK_INTERVAL)
    return exit_status(pod)


def complain(*words: str) -> None:
    print(*words, file=sys.stderr)  # noqa: T201


def copy_logs(output: ReportLines, argv: list[str]) -> None:
    with subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0) as logs:
        while logs.stdout and (chunk := logs.stdout.read(CHUNK)):
            output.write_chunk(chunk)
    output.close()


def read_pod(kubectl: str, name: str) -> dict[str, Any] | None:
    """Return the pod, or None if kubectl did not return it."""
    asked = subprocess.run([kubectl, "get", "pod", name, "--output=json"], stdout=subprocess.PIPE)
    try:
        answer: dict[str, Any] = json.loads(asked.stdout)
    except ValueError:
        return None
    return answer


def exit_status(pod: dict[str, Any]) -> int:
    status = pod["status"]
    for container in status.get("containerStatuses") or []:
        if terminated := (container.get("state") or {}).get("terminated"):
            if terminated.get("reason") not in (None, "Completed", "Error"):
                complain(terminated["reason"], terminated.get("message") or "")
            return int(terminated.get("exitCode") or 0)
    complain(status.get("reason") or "", status.get("message") or "")
    return 0 if status.get("phase") == "Succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
