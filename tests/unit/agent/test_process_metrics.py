"""Metrics of the machine and of a process."""

import threading
import time

from controlplane.agent.processes.process_metrics import MachineMetrics


def test_the_first_reading_counts_from_the_start_and_not_from_a_thread():
    metrics, read = MachineMetrics(), []
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    thread = threading.Thread(target=lambda: read.append(metrics.read()))
    thread.start()
    thread.join()
    assert 0 < read[0]["cpu_percent"] <= 100
    assert 0 < read[0]["memory_percent"] <= 100
