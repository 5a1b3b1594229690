"""`python -m tests.support.crowd URL COUNT NAME`: many servers in one process, each with the agent's own heart."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from controlplane.agent.client import Client
from controlplane.agent.fence import Fence
from controlplane.agent.heart import HeartbeatThread, HeldAttempts
from controlplane.agent.registration import register_server


def join(number: int) -> HeartbeatThread:
    client = Client(sys.argv[1], timeout=1)
    description = {"type": "INDEXER", "name": f"{sys.argv[3]}-{number}"}
    server = register_server(client, os.environ["CONTROLPLANE_TOKEN"], description, time.sleep)
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
