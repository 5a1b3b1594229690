"""Check of the keys that sign server tokens and sessions."""

import re

SHORTEST_KEY = 32
"""Minimum length in characters. A shorter key could be guessed offline by anyone with one signed token."""
HOW_TO_MAKE = "Make one with: python -c 'import secrets; print(secrets.token_hex(32))'"
PLACEHOLDER = re.compile(
    r"change.?(me|this|it)|replace.?(me|this|it)|(your|my|the|random).?secret|random.?characters", re.I
)
"""Words that mark example keys. A key that was copied from a document is public."""


def explain_weak_key(name: str, key: str | bytes) -> str | None:
    """Return a sentence that explains why a key is weak, or None for a good key. The sentence does not contain the key.

    `name` is the setting that holds the key.
    """
    text = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
    if len(text) < SHORTEST_KEY:
        return f"{name} has {len(text)} characters but needs at least {SHORTEST_KEY}. {HOW_TO_MAKE}"
    if found := PLACEHOLDER.search(text):
        return f"{name} contains {found[0]!r}: it was copied from an example. {HOW_TO_MAKE}"
    return None


def split_keys(text: str) -> list[str]:
    """Return the keys in a text, separated by commas or white space."""
    return [key for key in re.split(r"[,\s]+", text) if key]
