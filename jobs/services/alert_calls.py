"""HTTP calls for alerts. They reach addresses in private networks only if the settings allow it."""

import re
import socket
import threading
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from controlplane.agent.secrets.mask import SecretMask

TIMEOUT = urllib3.Timeout(connect=3, read=5)
"""Seconds to connect, and for each single read."""
CALL_DEADLINE = 12.0
"""Seconds after which a connection is closed, also if the receiver sends a byte now and then."""
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All IPv6 addresses of hosts on the Internet are in this network."""
MAPPED = IPv6Network("::ffff:0:0/96")
NAT64 = IPv6Network("64:ff9b::/96")
"""Addresses that lead to an IPv4 address, which is in their last 32 bits."""
RELAYS = IPv4Network("192.88.99.0/24")
"""Relays of 6to4. Any network may have one."""
OTHER_WAYS_TO_IPV4 = (IPv6Network("2002::/16"), IPv6Network("2001::/32"))
"""6to4 and Teredo: obsolete, and they lead to an IPv4 address that may be private."""


class NotSent(Exception):
    """A message was not sent; the text is the reason. It is tried again unless `is_final` is set."""

    is_final = False


class RefusedAddress(NotSent):
    """The address is in a private network."""


class BadStatus(NotSent):
    """The receiver responded with an error."""


class NotTried(NotSent):
    """The message was not tried, so this does not count as a try."""


class EndingConnection:
    """Mixin for a connection that is closed at the deadline, also during a TLS handshake."""

    sock: Any

    def connect(self) -> None:
        self._deadline = threading.Timer(CALL_DEADLINE, self._end)
        self._deadline.daemon = True
        self._deadline.start()
        super().connect()  # type: ignore[misc]

    def close(self) -> None:
        if hasattr(self, "_deadline"):
            self._deadline.cancel()
        super().close()  # type: ignore[misc]

    def _end(self) -> None:
        with suppress(OSError, AttributeError):
            self.sock.shutdown(socket.SHUT_RDWR)


class EndingHTTPConnection(EndingConnection, HTTPConnection):
    pass


class EndingHTTPSConnection(EndingConnection, HTTPSConnection):
    pass


def call_url(method: str, url: str, headers: dict[str, str], body: bytes | None, *, allow_private: bool) -> int:
    """Make a call and return the status of the response. Do not read its body or follow redirects. Raise NotSent.

    The name is looked up once, and the call goes to the found address, so that a later DNS response cannot change the
    target.
    """
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    address = find_address(host, port, allow_private=allow_private)
    pool: urllib3.HTTPConnectionPool
    if tls:
        pool = urllib3.HTTPSConnectionPool(address, port, server_hostname=host, assert_hostname=host, timeout=TIMEOUT)
    else:
        pool = urllib3.HTTPConnectionPool(address, port, timeout=TIMEOUT)
    pool.ConnectionCls = EndingHTTPSConnection if tls else EndingHTTPConnection
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with pool:
        answer = pool.urlopen(
            method,
            target,
            body=body,
            headers={**headers, "Host": parts.netloc.rpartition("@")[2]},
            retries=False,
            redirect=False,
            preload_content=False,
        )
        answer.close()
        return answer.status


def find_address(host: str, port: int, *, allow_private: bool) -> str:
    """Return an address of `host`. Raise NotSent, or RefusedAddress if one of its addresses is not public."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotSent(f"{host} cannot be looked up: {error}") from None
    for *_, (address, *_) in found:
        if not allow_private and not is_public(str(address)):
            raise RefusedAddress(
                f"{host} has the address {address} in a private network."
                " Set ALERTS[WEBHOOK_ALLOW_PRIVATE] to allow this."
            )
    return str(found[0][4][0])


def is_public(address: str) -> bool:
    """Return True if the address belongs to one host on the Internet, also when it leads to IPv4 through IPv6."""
    ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        if ip in MAPPED or ip in NAT64:
            ip = IPv4Address(int(ip) & 0xFFFFFFFF)
        elif ip not in GLOBAL_UNICAST or any(ip in network for network in OTHER_WAYS_TO_IPV4):
            return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip in RELAYS)


def mask_of_address(url: str, *, has_host: bool) -> SecretMask:
    """Return a mask of all parts of the address that may be secret.

    If `has_host` is False, the host part may be a token.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return SecretMask([url])
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    host = parts.netloc.rpartition("@")[2]
    found = [url, target, user, password, *re.split(r"[/?&=#]", f"{target}/{parts.fragment}")]
    if not has_host and "." not in host and not host.startswith("localhost"):
        found.append(host)
    return SecretMask([*found, *map(unquote, found)])
