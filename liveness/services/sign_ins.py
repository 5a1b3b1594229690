"""Limit sign-in attempts. The counts are in the database, because there may be many web processes.

An attempt is counted before its password is checked. Simultaneous attempts therefore cannot exceed the limit, and a
refused attempt costs no password hash.
"""

from datetime import timedelta
from importlib import import_module

from django.conf import settings
from django.db.models import F
from django.utils.crypto import salted_hmac

from controlplane.core.addresses import network
from liveness.models import SignIn
from liveness.sql import sql

OF_NAME, OF_ADDRESS = (5, 30.0), (20, 5.0)
"""Limits for one name from one address, and for one address. Each is (attempts at once, seconds until the next
attempt).

There is no limit for one name from all addresses: with it, anyone could lock out the owner of the name.
"""


def count(name: str, address: str) -> float:
    """Count a sign-in attempt. Return 0 if it is allowed, otherwise the seconds until an attempt is allowed again."""
    at = network(address)
    limits = {key(name, at): OF_NAME, key("", at): OF_ADDRESS}
    at_once, pauses = zip(*limits.values(), strict=True)
    counted = sql.count_sign_in.after(sql.lock_sign_ins_of_address).fetch_row(
        address=at,
        keys=list(limits),
        at_once=list(at_once),
        pauses=list(pauses),
    )
    return counted.seconds if counted else 0


def forget(name: str, address: str) -> None:
    """Reset the count of a name after it signed in, and do not count this attempt for its address."""
    at = network(address)
    SignIn.objects.filter(key=key(name, at)).delete()
    SignIn.objects.filter(key=key("", at)).update(until=F("until") - timedelta(seconds=OF_ADDRESS[1]))


def delete_expired_sessions() -> None:
    """Delete expired sessions from the store of SESSION_ENGINE."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()


def key(name: str, at: str) -> str:
    return salted_hmac("liveness.sign-in", f"{at} {name}", algorithm="sha256").hexdigest()
