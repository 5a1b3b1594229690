"""Many servers in one process, each with the agent's own heartbeats: `python -m tests.support.crowd URL COUNT NAME`."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from controlplane.agent.api.client import AgentClient
from controlplane.agent.api.heartbeat_thread import HeartbeatThread, HeldAttempts
from controlplane.agent.api.registration import register_server
from controlplane.agent.fence import Fence


def join(number: int) -> HeartbeatThread:
    client = AgentClient(sys.argv[1], timeout=1)
    description = {"type": "INDEXER", "name": f"{sys.argv[3]}-{number}"}
    server = register_server(client, lambda: os.environ["CONTROLPLANE_TOKEN"], description, time.sleep)
    heart = HeartbeatThread(
        server, Fence(), list_held_attempts=HeldAttempts, metrics=dict, on_answer=lambda answer: None,
        on_fenced=lambda: None
    )  # fmt: skip
    heart.start()
    return heart


if __name__ == "__main__":
    with ThreadPoolExecutor(8) as pool:
        hearts = list(pool.map(join, range(int(sys.argv[2]))))
    for heart in hearts:
        heart.join()
