"""Settings of sign-in through OpenID Connect, read from the environment."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

REQUIRED = ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET")
OPTIONAL = ("OIDC_GROUPS", "OIDC_GROUPS_CLAIM", "OIDC_SCOPES")
LOCAL = ("localhost", "127.0.0.1", "::1")


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return Django settings, or an empty dict if no variable is set. Raise ValueError for a half configuration.

    Most names are those of mozilla-django-oidc. The addresses of the provider are not settings:
    `controlplane.console.openid` reads them from the provider when the first user signs in.
    """
    given = {name: value for name in (*REQUIRED, *OPTIONAL) if (value := environment.get(name, "").strip())}
    if not given:
        return {}
    if missing := [name for name in REQUIRED if name not in given]:
        raise ValueError(
            f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} set, but not {' and '.join(missing)}. "
            f"Set {', '.join(REQUIRED)}, or none of them."
        )
    issuer = urlsplit(given["OIDC_ISSUER"])
    if issuer.scheme != "https" and not (issuer.scheme == "http" and issuer.hostname in LOCAL):
        raise ValueError(f"OIDC_ISSUER is {given['OIDC_ISSUER']!r} but must begin with https://.")
    return {
        "OIDC_ISSUER": given["OIDC_ISSUER"],
        "OIDC_GROUPS": read_groups(given["OIDC_GROUPS"]) if "OIDC_GROUPS" in given else None,
        "OIDC_GROUPS_CLAIM": given.get("OIDC_GROUPS_CLAIM", "groups"),
        "OIDC_RP_CLIENT_ID": given["OIDC_CLIENT_ID"],
        "OIDC_RP_CLIENT_SECRET": given["OIDC_CLIENT_SECRET"],
        "OIDC_RP_SCOPES": given.get("OIDC_SCOPES", "openid email groups"),
        "OIDC_RP_SIGN_ALGO": "RS256",
        "OIDC_USE_PKCE": True,
        "OIDC_TIMEOUT": 10,  # seconds, for each request to the provider
        "LOGIN_REDIRECT_URL": "/",
    }


def read_groups(text: str) -> dict[str, list[str]]:
    """Return the groups here for each group of the provider, from `theirs=ours, theirs=other`. Raise ValueError."""
    groups: dict[str, list[str]] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        theirs, equals, ours = (part.strip() for part in pair.rpartition("="))
        if not (theirs and equals and ours):
            raise ValueError(f"OIDC_GROUPS has {pair!r}. Write provider-group=group, with commas between the pairs.")
        groups.setdefault(theirs, []).append(ours)
    if not groups:
        raise ValueError("OIDC_GROUPS names no group. Write provider-group=group, or remove the variable.")
    return groups
