"""Values that nobody but the code of a job is to see, in a payload or an environment.

`{"secret": "name"}` stands for what its worker has under that name. `{"secret_value": "…"}` is the value itself, kept
with the job; that, and what has a name like `password`, is shown as `***`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any

MASK = "***"
REFERENCE, MARK = "secret", "secret_value"
ARGUMENTS = ("args", "kwargs")
"""Names of what a task is called with: an argument may be called `secret`, and is no reference."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
SECRET_NAME = re.compile(
    r".*(password|passwd|passphrase|secret|credential|(api|access|secret|private|signing|encryption)key)s?"
    r"|.*(token|authorization|.pwd)"
)
USUAL = 100
"""Characters of a name that is kept in mind with what it was found to be."""
MOST = 100
"""Secrets of one payload, or one environment: each is looked for in all that its code writes."""
LONGEST = 16 * 1024
"""Characters of a value that is looked for."""
LEAST_HIDDEN = 8
"""Characters: a shorter value of a name that looks secret may be a word, and is not looked for in other texts."""
ROW = re.compile(r"(Failing row contains )\(.*\)")
"""What PostgreSQL tells of a row that breaks a rule."""
ITEM_NAME = re.compile(r"""(['"])(\w+)\1: """)
ITEM_VALUE = re.compile(r"""'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$)|[\[({].*|[^,})\]]+""", re.DOTALL)
"""What Python shows of an item of a dict, which may be cut."""
WRONG_REFERENCE = 'A secret is {"secret": "NAME"} and nothing beside that.'
WRONG_NAME = (
    "The name of a secret has up to 100 letters, digits, dots, dashes and underscores, and begins with none of the "
    "dots and dashes."
)
WRONG_MARK = (
    'A value that is not to be shown is {"secret_value": "TEXT"} and nothing beside that; '
    f"the text has 1 to {LONGEST} characters."
)
STILL_MASKED = f'"{MASK}" is shown instead of {{}}: give the value itself.'


class WrongSecret(ValueError):
    """What looks like a secret, and is none; its text is a sentence."""


def find_problem(value: Any) -> str | None:
    """What is wrong with the secrets in a value, in a sentence; None: nothing is."""
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
    if count > MOST:
        return f"There are {count} secrets; at most {MOST}."
    return None if masked is None else STILL_MASKED.format(masked)


def is_secret(value: Any) -> bool:
    """Whether it stands for a text, though it is an object."""
    return isinstance(value, dict) and (REFERENCE in value or MARK in value)


def list_secrets(value: Any) -> Iterator[dict[str, str]]:
    """The references and marks in a value. Raises WrongSecret."""
    for item in _list_objects(value):
        if is_secret(item):
            _refuse_wrong_secret(item)
            yield item


def reveal(value: Any, secrets: Mapping[str, str]) -> Any:
    """The value with the texts that its references and marks stand for. Raises KeyError for one that is not known."""
    if isinstance(value, dict):
        if is_secret(value):
            return value[MARK] if MARK in value else secrets[value[REFERENCE]]
        return {name: reveal(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [reveal(item, secrets) for item in value]
    return value


def mask(value: Any, *, has_references: bool = True) -> Any:
    """The value as it is shown."""
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


def list_hidden_texts(value: Any) -> Iterator[str]:
    """What is not shown for its name alone, as far as it is long enough to be nothing else."""
    for found in _list_objects(value):
        for name, item in found.items():
            if isinstance(item, str) and LEAST_HIDDEN <= len(item) <= LONGEST and looks_secret(name):
                yield item


def restore(value: Any, stored: Any) -> Any:
    """A value that somebody was shown and sends back: where it is still masked, it is as it was stored."""
    if isinstance(value, dict) and isinstance(stored, dict):
        return {
            name: stored[name]
            if item == MASK and name in stored and _is_hidden(name, stored[name], True)
            else restore(item, stored.get(name))
            for name, item in value.items()
        }
    if isinstance(value, list) and isinstance(stored, list):
        by_key = {key: item for item in stored if (key := _key_of(item)) is not None}
        if by_key:  # steps, which may have been put in another order
            return [restore(item, by_key.get(_key_of(item) or "")) for item in value]
        if len(value) == len(stored):
            return [restore(item, before) for item, before in zip(value, stored, strict=True)]
    return value


def _key_of(step: Any) -> str | None:
    return key if isinstance(step, dict) and isinstance(key := step.get("key"), str) else None


def mask_arguments(text: str) -> str:
    """What Python shows of arguments, as it is shown."""
    shown, at = "", 0
    for name in ITEM_NAME.finditer(text):
        if name.start() >= at and looks_secret(name[2]) and (value := ITEM_VALUE.match(text, name.end())):
            shown, at = f"{shown}{text[at : name.end()]}'{MASK}'", value.end()
    return shown + text[at:]


def mask_event(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog, after `format_exc_info`."""
    shown: dict[str, Any] = mask(dict(event), has_references=False)
    if isinstance(text := shown.get("exception"), str):
        shown["exception"] = ROW.sub(rf"\1({MASK})", text)
    return shown


def looks_secret(name: str) -> bool:
    """Whether what has this name is not to be shown: DB_PASSWORD, apiKey, GITHUB_TOKEN; not token_count, max_tokens."""
    # Who submits jobs chooses the names: thousands of a megabyte each must not stay.
    return _match_usual_name(name) if len(name) <= USUAL else _match_name(name)


def _match_name(name: str) -> bool:
    plain = re.sub(r"[^a-z]", "", name.lower())  # db2-password_1 is a password as well
    return SECRET_NAME.fullmatch(plain) is not None


_match_usual_name = lru_cache(maxsize=4096)(_match_name)


def _may_hide(name: object) -> bool:
    return name == MARK or looks_secret(str(name))


def _is_hidden(name: str, item: Any, has_references: bool) -> bool:
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


def _list_objects(value: Any) -> Iterator[dict[str, Any]]:
    """A value, where it is an object, and all objects in it."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += [item for item in found.values() if isinstance(item, dict | list)]
        elif isinstance(found, list):
            waiting += [item for item in found if isinstance(item, dict | list)]
