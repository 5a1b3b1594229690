"""Network addresses of callers. Each has only one spelling, so that every limit counts a caller once."""

import ipaddress
from functools import lru_cache

IPV6_PREFIX = 64
"""Bits of an IPv6 address that name a network. Within it a caller may choose any address."""


def client_address(remote: str, forwarded: str = "") -> str:
    """Return the address of the caller, without a port.

    `remote` is the peer of the connection. `forwarded` is the X-Forwarded-For of a trusted proxy, or empty. Its last
    entry counts, because the caller may have invented the others. Some gateways write a port behind each address.
    """
    return without_port(forwarded.rpartition(",")[2].strip()) or without_port(remote)


def without_port(text: str) -> str:
    """Return `192.0.2.1:80` as `192.0.2.1` and `[2001:db8::1]:80` as `2001:db8::1`; any other text unchanged."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, port = text.rpartition(":")
    return host if colon and ":" not in host and port.isdecimal() else text


@lru_cache(maxsize=4096)
def network(address: str) -> str:
    """Return the addresses that one caller controls: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(parsed if parsed.version == 4 else ipaddress.ip_network((parsed, IPV6_PREFIX), strict=False))
