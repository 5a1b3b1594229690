"""Secret values in a payload or an environment: only the code of the job may see them.

`{"secret": "name"}` is a reference: the worker has the value under that name. `{"secret_value": "…"}` is the value
itself, stored with the job. It is shown as `***`, and so are values with names like `password`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any

MASK = "***"
REFERENCE, MARK = "secret", "secret_value"
ARGUMENTS = ("args", "kwargs")
"""Names for the arguments of a task. An argument named `secret` is not a reference."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
SECRET_NAME = re.compile(
    r".*(password|passwd|passphrase|secret|credential|(api|access|secret|private|signing|encryption)key)s?"
    r"|.*(token|authorization|.pwd)"
)
CACHED_NAME_LIMIT = 100
"""Characters: shorter names are cached with the result of the check."""
SECRETS_LIMIT = 100
"""Secrets in one payload or environment. Each is searched in all output of the code."""
LONGEST = 16 * 1024
"""Characters of a secret value."""
SHORTEST_HIDDEN = 8
"""Characters: a shorter value under a secret-looking name may be a plain word. Other texts are not searched for it."""
ROW = re.compile(r"(Failing row contains )\(.*\)")
"""PostgreSQL's message about a row that violates a constraint."""
PASSWORD = re.compile(
    r"((?::|%3a)(?://|\\/\\/|%2f%2f)[^\s/@:\"'<>]{0,200}?(?::|%3a))[^\s/\"'<>]{1,1000}(?=@|%40)", re.IGNORECASE
)
"""The password of an address, and the text before it, also as JSON or another address writes them."""
ITEM_NAME = re.compile(r"""(['"])(\w+)\1: """)
ITEM_VALUE = re.compile(r"""'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$)|[\[({].*|[^,})\]]+""", re.DOTALL)
"""The repr of a dict item, which may be cut."""
PATH_NAME = re.compile(r"[\w-]+")
WRONG_REFERENCE = 'A secret is {"secret": "NAME"} without other keys.'
WRONG_NAME = (
    "The name of a secret has up to 100 letters, digits, dots, dashes and underscores, and does not start with a dot "
    "or dash."
)
WRONG_MARK = f'A hidden value is {{"secret_value": "TEXT"}} without other keys; the text has 1 to {LONGEST} characters.'
STILL_MASKED = f'"{MASK}" is the mask of {{}}: send the value itself.'


class WrongSecret(ValueError):
    """An object that looks like a secret but is not valid. The message is a sentence for the user."""


def find_problem(value: object) -> str | None:
    """Return a sentence about a problem with the secrets in a value, or None."""
    count, masked = 0, None
    try:
        for found in _list_objects(value):
            if is_secret(found):
                _refuse_wrong_secret(found)
                count += 1
            if masked is None and MASK in found.values():
                masked = next((name for name, item in found.items() if item == MASK and looks_secret(name)), None)
    except WrongSecret as wrong:
        return str(wrong)
    if count > SECRETS_LIMIT:
        return f"There are {count} secrets; at most {SECRETS_LIMIT}."
    return None if masked is None else STILL_MASKED.format(masked)


def is_secret(value: object) -> bool:
    """Return True if an object stands for a secret text."""
    return isinstance(value, dict) and (REFERENCE in value or MARK in value)


def list_secrets(value: object) -> Iterator[dict[str, str]]:
    """Yield the references and hidden values in a value. Raise WrongSecret."""
    for item in _list_objects(value):
        if is_secret(item):
            _refuse_wrong_secret(item)
            yield item


def reveal(value: object, secrets: Mapping[str, str]) -> Any:
    """Return the value with the real texts of its secrets. Raise KeyError for a reference that is not in `secrets`."""
    if isinstance(value, dict):
        if is_secret(value):
            return value[MARK] if MARK in value else secrets[value[REFERENCE]]
        return {name: reveal(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [reveal(item, secrets) for item in value]
    return value


def mask(value: object, *, has_references: bool = True) -> Any:
    """Return the value as it may be shown."""
    if isinstance(value, list):
        return [mask(item, has_references=has_references) for item in value]
    if not isinstance(value, dict):
        return value
    if has_references and _is_reference(value):
        return value
    return {
        name: item
        if not isinstance(item, (dict, list)) and not _may_hide(name)
        else MASK
        if _is_hidden(name, item, has_references)
        else mask(item, has_references=has_references and name not in ARGUMENTS)
        for name, item in value.items()
    }


def list_hidden_texts(value: object) -> Iterator[str]:
    """Yield texts that are hidden only because of their name, if they are long enough not to be plain words."""
    for found in _list_objects(value):
        for name, item in found.items():
            if isinstance(item, str) and SHORTEST_HIDDEN <= len(item) <= LONGEST and looks_secret(name):
                yield item


def restore(value: object, stored: object) -> Any:
    """Return a value that a user sent back, with stored values in place of the masks."""
    if isinstance(value, dict) and isinstance(stored, dict):
        return {
            name: stored[name]
            if item == MASK and name in stored and _is_hidden(name, stored[name], True)
            else restore(item, stored.get(name))
            for name, item in value.items()
        }
    if isinstance(value, list) and isinstance(stored, list):
        by_key = {key: item for item in stored if (key := _key_of(item)) is not None}
        if by_key:  # steps, perhaps in another order
            return [restore(item, by_key.get(_key_of(item) or "")) for item in value]
        if len(value) == len(stored):
            return [restore(item, before) for item, before in zip(value, stored, strict=True)]
    return value


def _key_of(step: object) -> str | None:
    return key if isinstance(step, dict) and isinstance(key := step.get("key"), str) else None


def hides_value(path: str) -> bool:
    """Return True if the value at an SQL/JSON path is hidden, because the path has a name like `password`.

    A path that reaches names without naming them, such as `.*`, hides its value too.
    """
    return "\\" in path or ".*" in path or "keyvalue" in path or any(map(looks_secret, PATH_NAME.findall(path)))


def mask_arguments(text: str) -> str:
    """Return the repr of arguments as it may be shown."""
    shown, at = "", 0
    for name in ITEM_NAME.finditer(text):
        if name.start() >= at and looks_secret(name[2]) and (value := ITEM_VALUE.match(text, name.end())):
            shown, at = f"{shown}{text[at : name.end()]}'{MASK}'", value.end()
    return shown + text[at:]


def mask_addresses(text: str) -> str:
    """Return the text with `***` for passwords in its addresses: postgresql://user:***@host."""
    return PASSWORD.sub(rf"\1{MASK}", text) if "@" in text or "%40" in text else text


def mask_event(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask secrets in a log event. A structlog processor, to be placed after `format_exc_info`."""
    shown: dict[str, Any] = mask(dict(event), has_references=False)
    shown = {name: mask_addresses(value) if isinstance(value, str) else value for name, value in shown.items()}
    if isinstance(text := shown.get("exception"), str):
        shown["exception"] = ROW.sub(rf"\1({MASK})", text)
    return shown


def looks_secret(name: str) -> bool:
    """Return True if values with this name are hidden.

    These are hidden: DB_PASSWORD, apiKey, GITHUB_TOKEN. These are not: token_count, max_tokens.
    """
    # Submitters choose the names, so do not cache thousands of names of a megabyte each.
    return _match_usual_name(name) if len(name) <= CACHED_NAME_LIMIT else _match_name(name)


def _match_name(name: str) -> bool:
    plain = re.sub(r"[^a-z]", "", name.lower())  # db2-password_1 is a password too
    return SECRET_NAME.fullmatch(plain) is not None


_match_usual_name = lru_cache(maxsize=4096)(_match_name)


def _may_hide(name: object) -> bool:
    return name == MARK or looks_secret(str(name))


def _is_hidden(name: str, item: object, has_references: bool) -> bool:
    if name == MARK:
        return True
    is_shown = item is None or isinstance(item, bool) or item in ("", [], {})
    return _may_hide(name) and not is_shown and not (has_references and is_secret(item))


def _is_reference(value: dict[str, Any]) -> bool:
    return len(value) == 1 and isinstance(name := value.get(REFERENCE), str) and NAME.fullmatch(name) is not None


def _refuse_wrong_secret(value: dict[str, Any]) -> None:
    if MARK in value:
        text = value[MARK]
        if len(value) != 1 or not isinstance(text, str) or not 0 < len(text) <= LONGEST:
            raise WrongSecret(WRONG_MARK)
        if text == MASK:
            raise WrongSecret(STILL_MASKED.format(MARK))
    elif len(value) != 1 or not isinstance(value[REFERENCE], str):
        raise WrongSecret(WRONG_REFERENCE)
    elif not NAME.fullmatch(value[REFERENCE]):
        raise WrongSecret(WRONG_NAME)


def _list_objects(value: object) -> Iterator[dict[str, Any]]:
    """Yield all objects in a value, including the value itself."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += [item for item in found.values() if isinstance(item, dict | list)]
        elif isinstance(found, list):
            waiting += [item for item in found if isinstance(item, dict | list)]
