"""The Authorization header."""


def read_bearer(header: str) -> str:
    """Return the token of `Bearer TOKEN`, or an empty text.

    All code that reads tokens calls this function. So a token counts as one caller, however the header is written.
    """
    scheme, _, text = header.strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""
