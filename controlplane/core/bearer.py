"""The Authorization header."""


def read_bearer(header: str) -> str:
    """Return the token of `Bearer TOKEN`, or an empty text.

    Every reader of tokens calls this function, so that one token is one caller however it is written.
    """
    scheme, _, text = header.strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""
