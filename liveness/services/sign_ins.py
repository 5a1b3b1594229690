"""How often somebody may try to sign in. The count is in the database: there may be many web processes.

A try is counted before its password is looked at, so that no number of tries at once gets past the limit, and none of
those that are refused costs the time of a hash.
"""

import ipaddress
from datetime import timedelta
from importlib import import_module

from django.conf import settings
from django.db.models import F
from django.utils.crypto import salted_hmac

from liveness.models import SignIn
from liveness.sql import sql

OF_NAME, OF_ADDRESS = (5, 30.0), (20, 5.0)
"""Tries at once, and seconds until the next: under one name from one address, and from one address at all.

Not under one name from anywhere: anybody could keep its owner out.
"""


def count(name: str, address: str) -> float:
    """Count a try. Seconds until one is allowed, if this is not; 0: it is."""
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
    """It was the right password: the tries before it were somebody's who mistyped, and it is none of its address."""
    at = network(address)
    SignIn.objects.filter(key=key(name, at)).delete()
    SignIn.objects.filter(key=key("", at)).update(until=F("until") - timedelta(seconds=OF_ADDRESS[1]))


def delete_expired_sessions() -> None:
    """Sessions that are over, wherever SESSION_ENGINE keeps them."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()


def key(name: str, at: str) -> str:
    return salted_hmac("liveness.sign-in", f"{at} {name}", algorithm="sha256").hexdigest()


def network(address: str) -> str:
    """What one caller has: of IPv6 the 64 bits within which it may choose any address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
