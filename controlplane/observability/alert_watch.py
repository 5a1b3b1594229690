"""Alert watch of web processes. Executors send alerts; if no executor is left, a web process sends them."""

import threading

import structlog

from controlplane.core.database import connection
from jobs.services import alerts
from liveness.conf import conf
from liveness.selectors.clock import clock_ages, is_check_late

log = structlog.get_logger()

watches: list[threading.Thread] = []


def begin_watch() -> None:
    """Start the watch once per process, in a thread."""
    if watches:
        return
    watch = threading.Thread(target=watch_checks, name="alert-watch", daemon=True)
    watches.append(watch)
    watch.start()


def watch_checks() -> None:
    pause = threading.Event()  # never set: the thread ends with its process
    while not pause.wait(3 * conf().interval):
        try:
            send_if_unattended()
        except Exception as error:
            log.warning("Alerts could not be sent", error=str(error).strip().split("\n")[0])
        finally:
            connection.close()


def send_if_unattended() -> bool:
    """If no liveness check has completed for three intervals, send alerts and return True."""
    age, _ = clock_ages()
    if is_late := age is not None and is_check_late(age):
        alerts.run_alerts()
    return is_late
