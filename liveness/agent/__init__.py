"""The Django-free side of liveness: register, beat, fence yourself."""

from liveness.agent.backoff import again_within, answer_within, full_jitter
from liveness.agent.client import Client, Refused, Unreachable
from liveness.agent.fence import Fence, uptime
from liveness.agent.heart import Heart, Holdings
from liveness.agent.server import Config, Server, register

__all__ = [
    "Client",
    "Config",
    "Fence",
    "Heart",
    "Holdings",
    "Refused",
    "Server",
    "Unreachable",
    "again_within",
    "answer_within",
    "full_jitter",
    "register",
    "uptime",
]
