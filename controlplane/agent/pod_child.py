"""A pod, from its manifest on stdin to its end: `python -m controlplane.agent.pod_child KUBECTL NAME`.

Writes what its code writes, but for its reports (report_lines.py), and exits as it does; with 125 when there could be
no pod.
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

from controlplane.agent.report_lines import FILES, ReportLines

LOOK_INTERVAL = 0.5  # seconds
NOT_BEGUN = 125
CHUNK = 65536
MISSED = 30  # looks in a row without an answer


def main() -> int:
    kubectl, name = sys.argv[1:3]
    created = subprocess.run([kubectl, "create", "--filename=-"], input=sys.stdin.buffer.read(), stdout=subprocess.PIPE)
    if created.returncode:
        return NOT_BEGUN
    output = ReportLines(
        sys.stdout.buffer, {name: Path(os.environ[name]) for name in FILES.values() if name in os.environ}
    )
    followed_from, missed = None, 0
    while True:
        pod = read_pod(kubectl, name)
        phase = (pod or {}).get("status", {}).get("phase")
        missed = missed + 1 if pod is None else 0
        if missed > MISSED:
            print(f"nothing is heard of pod {name}", file=sys.stderr)  # noqa: T201
            return 1
        if phase in ("Succeeded", "Failed") and pod:
            if followed_from is None:
                copy_logs(output, [kubectl, "logs", name])
            break
        if phase == "Running":
            # Where the connection ended before the pod did: from there on.
            since: list[str] = [f"--since-time={followed_from}"] if followed_from else []
            copy_logs(output, [kubectl, "logs", "--follow", *since, name])
            followed_from = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        time.sleep(LOOK_INTERVAL)
    return exit_status(pod)


def copy_logs(output: ReportLines, argv: list[str]) -> None:
    with subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0) as logs:
        while logs.stdout and (chunk := logs.stdout.read(CHUNK)):
            output.write_chunk(chunk)
    output.close()


def read_pod(kubectl: str, name: str) -> dict[str, Any] | None:
    """None: there was no answer."""
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
                print(terminated["reason"], terminated.get("message") or "", file=sys.stderr)  # noqa: T201
            return int(terminated.get("exitCode") or 0)
    print(status.get("reason") or "", status.get("message") or "", file=sys.stderr)  # noqa: T201
    return 0 if status.get("phase") == "Succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
