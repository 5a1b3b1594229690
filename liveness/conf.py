"""`LIVENESS` in Django settings; each key also from the environment as LIVENESS_KEY."""

import math
from dataclasses import dataclass

from controlplane.agent.backoff import heartbeat_retry_window
from controlplane.core.settings_schema import Conf, Seconds
from liveness.states import RestartStrategy


@dataclass(frozen=True)
class LivenessSettings:
    enabled: bool = True
    """False: nobody is disconnected for silence. Recovery of servers that are lost goes on."""
    interval: Seconds = 10
    """Between two liveness checks."""
    timeout: Seconds = 45
    """Silence after which a server is DISCONNECTED."""
    initial_delay: Seconds = 45
    """A server younger than this is not disconnected."""
    heartbeat_interval: Seconds = 3
    """Between two heartbeats of a server."""
    staleness_multiplier: float = 3.0
    """A worker gets work only while its last heartbeat is younger than this many heartbeat intervals."""
    termination_grace_period: Seconds = 300
    """For finishing jobs after SIGTERM, and for waiting before a lost server's running jobs move."""
    worker_task_restart_strategy: RestartStrategy = RestartStrategy.AFTER_TERMINATION_GRACE_PERIOD
    """When the running jobs of a lost worker are given away."""
    reactivate_on_heartbeat: bool = False
    """True: a server that was found dead comes back when it is heard (Strøm). False: nobody resurrects (Kestra)."""
    brake_minimum: int | None = 3
    """The brake holds a type of server of which at least so many would be disconnected at once. None: no brake."""
    brake_share: float = 1 / 3
    """And at least this share of its alive servers."""
    brake_max_hold: Seconds = 300
    """The brake holds no longer than this; from then on 10 % go per check."""
    witness_url: str | None = None
    """The address that workers use: the executor beats there, as witness. None: a web process beats to itself."""
    signing_key: str | None = None
    """Signs the tokens of servers, the same for all processes; 50 random characters. None: Django's SECRET_KEY."""
    metrics_public: bool = False
    """True: `/metrics` needs no token. False: one of a viewer or operator."""
    heartbeat_retention: Seconds | None = 86400
    """Heartbeats are kept so long."""
    event_retention: Seconds | None = 90 * 86400
    """Events are kept so long."""
    server_retention: Seconds | None = 30 * 86400
    """INACTIVE servers are kept so long, and longer while an attempt refers to them."""


conf = Conf(LivenessSettings, "LIVENESS")


def witness_window() -> float:
    """Seconds for which observed time goes on without a beat that proves that heartbeats get in.

    An outage counts for so long and for one check more, and then for the checks before a server has said again what
    was swallowed: all that is less than the timeout, from the last beat before the outage on.
    """
    timeout, beat, check = conf().timeout, conf().heartbeat_interval, conf().interval
    return max(check, min(2 * beat, timeout - beat - recontact_delay(timeout, beat, check)))


def recontact_delay(timeout: float, heartbeat_interval: float, interval: float) -> float:
    """Seconds of the checks that may pass after an outage before a server has said again what was swallowed."""
    return math.ceil(heartbeat_retry_window(timeout, heartbeat_interval) / interval - 1e-9) * interval


def timeout_problems(
    *, timeout: float, heartbeat_interval: float, interval: float, window: float | None = None
) -> list[str]:
    """What is wrong with a timeout, with both values named. Holds for the settings and for a server's own config.

    A server's own is to fit to the `window` that the settings have made.
    """
    problems = []
    if timeout < 2 * heartbeat_interval:
        problems.append(
            f"The timeout of {timeout:g} s is below two heartbeat intervals of {heartbeat_interval:g} s: "
            f"one lost heartbeat would disconnect a living server. Use at least {2 * heartbeat_interval:g} s."
        )
    least = heartbeat_interval + 2 * interval
    if timeout < least:
        problems.append(
            f"The timeout of {timeout:g} s is below the heartbeat interval of {heartbeat_interval:g} s plus two "
            f"check intervals of {interval:g} s. Use at least {least:g} s."
        )
    # Settings are never refused for this: they make the window.
    elif window is not None and window + recontact_delay(timeout, heartbeat_interval, interval) > (
        timeout - heartbeat_interval + 1e-9
    ):
        problems.append(
            f"The timeout of {timeout:g} s is below what an outage may count, which is noticed after {window:g} s. "
            f"Use at least {heartbeat_interval + 1.5 * (window + interval):g} s."
        )
    return problems
