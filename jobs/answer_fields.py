"""Fields of answers: the part of JSON Schema in which a step describes the values that it asks for. Needs no Django.

The schema is an object with `properties`, and perhaps `required`. A property has a `type` of TYPES, and perhaps a
title, a description, a default, an enum and limits. Other words are refused, so that no rule is silently ignored.
"""

from collections.abc import Iterator, Mapping
from typing import Any

TYPES = ("string", "number", "integer", "boolean")
FIELDS_LIMIT = 50
RESERVED = {"choice", "note", "csrfmiddlewaretoken"}
"""Names of other fields of the form."""
WORDS_OF_SCHEMA = {"type", "properties", "required", "additionalProperties", "title", "description"}
WORDS = {"type", "title", "description", "default", "enum"}
WORDS_OF = {
    "string": {"minLength", "maxLength"},
    "number": {"minimum", "maximum"},
    "integer": {"minimum", "maximum"},
    "boolean": set(),
}
"""Further words of a property, by its type."""


def find_schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return a sentence about the first problem of a schema, or None."""
    return next(_list_schema_problems(schema), None)


def _list_schema_problems(schema: Mapping[str, Any]) -> Iterator[str]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if unknown := sorted(schema.keys() - WORDS_OF_SCHEMA):
        yield f"{unknown[0]!r} is not supported here. Known are: {', '.join(sorted(WORDS_OF_SCHEMA))}."
    if schema.get("type", "object") != "object":
        yield "The type of the schema must be object."
    if schema.get("additionalProperties", False) is not False:
        yield "An answer has no other properties: additionalProperties must be false."
    if not isinstance(properties, dict) or len(properties) > FIELDS_LIMIT:
        yield f"properties must be an object of at most {FIELDS_LIMIT} fields."
        return
    if taken := RESERVED & properties.keys():
        yield f"A field cannot be named {min(taken)!r}, because the form has a field of that name."
    for name, field in properties.items():
        if problem := _find_field_problem(field):
            yield f"Field {name!r}: {problem}"
    if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
        yield "required must be a list of names of properties."


def _find_field_problem(field: object) -> str | None:
    if not isinstance(field, dict) or field.get("type") not in TYPES:
        return f"its type must be one of {', '.join(TYPES)}."
    known = WORDS | WORDS_OF[field["type"]]
    if unknown := sorted(field.keys() - known):
        return f"{unknown[0]!r} is not supported here. Known are: {', '.join(sorted(known))}."
    if any(not isinstance(field[word], str) for word in ("title", "description") if word in field):
        return "title and description must be texts."
    for word in ("minLength", "maxLength"):
        if word in field and (type(field[word]) is not int or field[word] < 0):
            return f"{word} must be a whole number from 0 on."
    for word in ("minimum", "maximum"):
        if word in field and (isinstance(field[word], bool) or not isinstance(field[word], int | float)):
            return f"{word} must be a number."
    if "enum" in field and not (isinstance(field["enum"], list) and 0 < len(field["enum"]) <= FIELDS_LIMIT):
        return f"enum must be a list of 1 to {FIELDS_LIMIT} values."
    plain = {word: value for word, value in field.items() if word != "enum"}
    for value in [*field.get("enum", []), *([field["default"]] if "default" in field else [])]:
        if problem := find_value_problem(plain, value):
            return f"the value {value!r} does not fit: {problem}"
    return None


def find_value_problem(field: Mapping[str, Any], value: object) -> str | None:
    """Return a sentence about a value that does not fit its field, or None."""
    kind = field["type"]
    is_right = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }[kind]
    if not is_right:
        return f"It must be of the type {kind}."
    if "enum" in field and value not in field["enum"]:
        return f"It must be one of {', '.join(map(str, field['enum']))}."
    if isinstance(value, str):
        if len(value) < field.get("minLength", 0):
            return f"It must have at least {field['minLength']} characters."
        if "maxLength" in field and len(value) > field["maxLength"]:
            return f"It must have at most {field['maxLength']} characters."
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in field and value < field["minimum"]:
            return f"It must be at least {field['minimum']}."
        if "maximum" in field and value > field["maximum"]:
            return f"It must be at most {field['maximum']}."
    return None


def find_value_problems(schema: Mapping[str, Any] | None, values: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence for each field whose value does not fit the schema. None: the answer has no fields."""
    properties = (schema or {}).get("properties", {})
    known = ", ".join(properties) or "none"
    problems = {name: f"Unknown field. Known are: {known}." for name in values if name not in properties}
    problems |= {name: "This field is required." for name in (schema or {}).get("required", []) if name not in values}
    for name, value in values.items():
        if name in properties and (problem := find_value_problem(properties[name], value)):
            problems[name] = problem
    return problems
