"""Settings in the dictionary `LIVENESS` of Django's settings. The environment variable LIVENESS_KEY overrides a key."""

import math
from dataclasses import dataclass

from controlplane.agent.api.backoff import heartbeat_retry_window
from controlplane.core.settings_schema import Conf, Seconds
from liveness.states import RestartStrategy


@dataclass(frozen=True)
class LivenessSettings:
    enabled: bool = True
    """False: no server is disconnected for silence. Jobs of servers that are already lost are still recovered."""
    interval: Seconds = 10
    """Time between two liveness checks."""
    timeout: Seconds = 45
    """Time without a heartbeat after which a server is DISCONNECTED."""
    initial_delay: Seconds = 45
    """A server younger than this is not disconnected."""
    heartbeat_interval: Seconds = 3
    """Time between two heartbeats of a server."""
    staleness_multiplier: float = 3.0
    """Number of heartbeat intervals. A worker whose last heartbeat is older than that is not fresh and gets no work."""
    termination_grace_period: Seconds = 300
    """Time that a server has to finish its jobs after SIGTERM. Running jobs of a lost server also wait this long before
    they are recovered."""
    worker_task_restart_strategy: RestartStrategy = RestartStrategy.AFTER_TERMINATION_GRACE_PERIOD
    """When the running jobs of a lost worker are recovered."""
    reactivate_on_heartbeat: bool = False
    """True: a heartbeat makes a lost server RUNNING again (Strøm). False: it must register as a new server (Kestra)."""
    brake_minimum: int | None = 3
    """The brake holds the servers of one type and namespace if at least this many would be disconnected at once. None:
    there is no brake."""
    brake_share: float = 1 / 3
    """The brake also needs at least this share of the alive servers of that type and namespace."""
    brake_max_hold: Seconds = 300
    """Longest time that the brake holds. After it, each check disconnects 10 % of the held servers."""
    witness_url: str | None = None
    """URL that workers use. The executor sends its own heartbeats there, as proof that heartbeats can arrive. None:
    each web process sends its heartbeats to itself."""
    signing_key: str | None = None
    """Key that signs server tokens: at least 32 random characters, the same in all processes. None: SECRET_KEY."""
    signing_key_fallbacks: str = ""
    """Earlier signing keys, separated by white space. Server tokens that they signed are still accepted."""
    metrics_public: bool = False
    """True: `/metrics` needs no token. False: it needs a token of the role viewer or operator."""
    heartbeat_retention: Seconds | None = 86400
    """Minimum time that heartbeats of servers are kept. They are deleted by whole days (UTC). None: they are never
    deleted."""
    event_retention: Seconds | None = 90 * 86400
    """Time for which events are kept. None: they are never deleted."""
    server_retention: Seconds | None = 30 * 86400
    """Time for which INACTIVE servers are kept. A server that an attempt refers to is kept longer. None: they are never
    deleted."""


conf = Conf(LivenessSettings, "LIVENESS")


def witness_window() -> float:
    """Return the longest time in seconds that observed time advances without proof that heartbeats can arrive.

    After an outage of the control plane, a server is silent for this window, one check interval, and the checks until
    its next heartbeat. The window is short enough that all three together are less than the server's timeout.
    """
    timeout, beat, check = conf().timeout, conf().heartbeat_interval, conf().interval
    return max(check, min(2 * beat, timeout - beat - recontact_delay(timeout, beat, check)))


def recontact_delay(timeout: float, heartbeat_interval: float, interval: float) -> float:
    """Return the longest time in seconds until a server sends a heartbeat after an outage, in whole check intervals."""
    return math.ceil(heartbeat_retry_window(timeout, heartbeat_interval) / interval - 1e-9) * interval


def timeout_problems(
    *, timeout: float, heartbeat_interval: float, interval: float, window: float | None = None
) -> list[str]:
    """Return one sentence for each rule that a timeout breaks. All parameters are in seconds.

    The same rules apply to the settings and to the config of a server. For a server, `window` is the witness window of
    the settings, because its timeout must fit it.
    """
    problems = []
    if timeout < 2 * heartbeat_interval:
        problems.append(
            f"The timeout of {timeout:g} s is below two heartbeat intervals of {heartbeat_interval:g} s. "
            f"One lost heartbeat would disconnect a living server. Use at least {2 * heartbeat_interval:g} s."
        )
    least = heartbeat_interval + 2 * interval
    if timeout < least:
        problems.append(
            f"The timeout of {timeout:g} s is below the heartbeat interval of {heartbeat_interval:g} s plus two "
            f"check intervals of {interval:g} s. Use at least {least:g} s."
        )
    # Settings always fit their own window, because it is computed from them.
    elif window is not None and window + recontact_delay(timeout, heartbeat_interval, interval) > (
        timeout - heartbeat_interval + 1e-9
    ):
        problems.append(
            f"The timeout of {timeout:g} s is too short: an outage of the control plane, which is noticed after "
            f"{window:g} s, could disconnect a living server. "
            f"Use at least {heartbeat_interval + 1.5 * (window + interval):g} s."
        )
    return problems
