"""Time that the agent takes to call a function that does nothing: forked from a warm process, and in a new interpreter.

`python -m tests.bench.calls` measures it in a separate process, which adopts the processes it starts.
"""

import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.runners import policy
from tests.bench.rows import Row, Step

ROUNDS = 20
MODULE = "calls_nothing"


def call(data_dir: Path, step: Step) -> Row:
    (data_dir / f"{MODULE}.py").write_text("def nothing(payload):\n    pass\n")
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(data_dir)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.calls"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    step()
    warm, cold = json.loads(done.stdout)
    return Row("call", warm * 1000, "ms", cold * 1000, "the same call in a new interpreter", "< 20 ms")


def measure(calls_per_process: int) -> float:
    """Return the median seconds from the start of a call to its result."""
    with selectors.DefaultSelector() as selector:
        supervisor = Supervisor(selector, calls_per_process)
        supervisor.adopt()
        call_once(supervisor, selector)
        call_once(supervisor, selector)  # from here on a process to fork from is worth its cost
        if calls_per_process > 1:
            time.sleep(1)  # until that process has started
        times = [call_once(supervisor, selector) for _ in range(ROUNDS)]
        supervisor.close()
    return median(times)


def call_once(supervisor: Supervisor, selector: selectors.BaseSelector) -> float:
    action = {"type": "callable", "path": f"{MODULE}:nothing"}
    runner = policy.ActionPolicy.parse_options(None).choose_runner(action)
    item = {"id": "attempt", "number": 1, "job": {"id": "job", "action": action, "payload": None}}
    began = time.perf_counter()
    supervisor.start_child("attempt", runner.build_command(item, {}, os.environ))
    while not (ended := supervisor.reap_children()):
        supervisor.transfer_ready(selector.select(0.001))
    took = time.perf_counter() - began
    assert runner.build_report(ended[0])["event"] == "COMPLETED", ended[0]
    return took


if __name__ == "__main__":
    json.dump([measure(1000), measure(1)], sys.stdout)
