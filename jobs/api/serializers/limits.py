"""Requests and responses of the calls about limits, and the field of jobs that names keys."""

from collections.abc import Iterator, Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.agent.clean_text import is_clean
from controlplane.core.answers import ModelAnswer
from controlplane.core.paging import PageFilter
from controlplane.core.rest import NoteField, SecondsField, StrictSerializer, TimeField, WholeField, YesNoField
from jobs.models import Execution, LimitRule
from jobs.models.limits import RESERVED
from liveness.models import DEFAULT_NAMESPACE

QUOTAS = ("max_waiting", "submissions_per_minute")
KEYS_LIMIT, KEY_LENGTH, SLOTS_LIMIT, WEIGHT_LIMIT = 4, 200, 1_000_000, 1000


def find_key_problem(key: object) -> str | None:
    """Return why a job may not name this key of a limit, or None."""
    if problem := find_text_problem(key):
        return problem
    if str(key).startswith(RESERVED):
        return f"The key {key!r} is reserved: keys must not begin with {', '.join(RESERVED[:-1])} or {RESERVED[-1]}"
    return None


def find_text_problem(key: object) -> str | None:
    if not isinstance(key, str) or not 0 < len(key) <= KEY_LENGTH or not is_clean(key):
        return f"A key is a text of 1 to {KEY_LENGTH} characters on one line."
    if key.strip() != key or key.endswith(":*"):
        return f"The key {key!r} must not begin or end with a space, or end with `:*`, which is for rules."
    return None


def read_keys(keys: list[Any]) -> dict[str, int]:
    """Return an object of keys and one slot each. Raise ValidationError."""
    if not all(isinstance(key, str) for key in keys):
        raise serializers.ValidationError("Give keys as texts.")
    if len(set(keys)) < len(keys):
        raise serializers.ValidationError("Give each key once.")
    return dict.fromkeys(keys, 1)


@extend_schema_field(
    {
        "oneOf": [
            {"type": "array", "items": {"type": "string", "maxLength": KEY_LENGTH}, "maxItems": KEYS_LIMIT},
            {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 1, "maximum": SLOTS_LIMIT},
                "maxProperties": KEYS_LIMIT,
            },
        ]
    }
)
class LimitsField(serializers.Field[Any, Any, Any, Any]):
    """Keys of limits: a list, or an object of keys and slots. The value is an object, or None without a key."""

    def to_internal_value(self, data: object) -> dict[str, int] | None:
        if isinstance(data, list):
            data = read_keys(data)
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("Give a list of keys, or an object of keys and numbers of slots.")
        if len(data) > KEYS_LIMIT:
            raise serializers.ValidationError(f"There are {len(data)} keys, but at most {KEYS_LIMIT} are allowed.")
        for key, slots in data.items():
            if problem := find_key_problem(key):
                raise serializers.ValidationError(problem)
            if not isinstance(slots, int) or isinstance(slots, bool) or not 0 < slots <= SLOTS_LIMIT:
                raise serializers.ValidationError(f"Slots of {key!r} must be a whole number from 1 to {SLOTS_LIMIT}.")
        return dict(data) or None

    def to_representation(self, value: Any) -> Any:
        return value


def find_held_keys(definition: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each key of an execution that a step of it names too. Such a step could never start."""
    held = set(definition.get("limits") or {})
    named = {key for key in list_keys_of_steps(definition) if key in held} if held else set()
    return [
        f"The execution holds the slots of the key {key!r} until its end, so no step of it may name the key."
        for key in sorted(named)
    ]


def list_keys_of_steps(definition: Mapping[str, Any]) -> Iterator[str]:
    for step in definition["steps"]:
        yield from step.get("limits") or ()
        if step["action"]["type"] == "execution":
            yield from step["action"].get("limits") or ()
            yield from list_keys_of_steps(step["action"])


def describe_parking(parked_by: dict[str, str] | None) -> dict[str, str] | None:
    """Return what parks a job or an execution. A first step is parked by a limit of its execution."""
    return {"limit": parked_by["execution_limit"]} if parked_by and "execution_limit" in parked_by else parked_by


class LimitedAnswer(ModelAnswer):
    """Fields of an execution about its limits."""

    limits = serializers.SerializerMethodField(help_text="Slots that it holds from its start to its end, by key.")
    parked_by = serializers.SerializerMethodField(
        help_text='Why it has not started: `{"limit": key}`. Null: it has started, or ended.'
    )

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "integer"}})
    def get_limits(self, execution: Execution) -> dict[str, int]:
        return execution.limits or {}

    @extend_schema_field({"type": ["object", "null"], "additionalProperties": {"type": "string"}})
    def get_parked_by(self, execution: Execution) -> dict[str, str] | None:
        return execution.parked_by if execution.finished_at is None else None


def find_pattern_problem(pattern: str) -> str | None:
    """Return why a text is no pattern of a rule, or None."""
    key = pattern.removesuffix(":*")
    if key in RESERVED:
        return f"The pattern {pattern!r} needs the name of the {key[:-1]} after the colon, or `*` for each."
    return find_text_problem(key) or (
        f"The pattern {pattern!r} has a `*`, which is allowed only at its end, after a colon." if "*" in key else None
    )


class LimitRequest(StrictSerializer):
    """Rule of a limit. It replaces the rule that is there."""

    running = WholeField(
        required=False, allow_null=True, min_value=0, max_value=SLOTS_LIMIT,
        help_text="Slots that may be held at once, over all workers. 0: no job with the key starts.",
    )  # fmt: skip
    starts = WholeField(
        required=False, allow_null=True, min_value=1, max_value=SLOTS_LIMIT,
        help_text="Jobs with the key that may start in `per_seconds`, also all at once.",
    )  # fmt: skip
    per_seconds = SecondsField(required=False, allow_null=True, min_value=0.001)
    max_running = WholeField(
        required=False, allow_null=True, min_value=0, max_value=SLOTS_LIMIT,
        help_text="Only for `namespace:NAME`: another name of `running`.",
    )  # fmt: skip
    max_waiting = WholeField(
        required=False, allow_null=True, min_value=0, max_value=SLOTS_LIMIT,
        help_text="Only for `namespace:NAME`: jobs that may wait in the namespace. More are refused with 429.",
    )  # fmt: skip
    submissions_per_minute = WholeField(
        required=False, allow_null=True, min_value=1, max_value=SLOTS_LIMIT,
        help_text="Only for `namespace:NAME`: jobs and executions that clients may submit in a minute.",
    )  # fmt: skip
    fair = YesNoField(
        required=False, allow_null=True,
        help_text="True: the keys take turns, so that many jobs of one key do not delay those of others.",
    )  # fmt: skip
    weight = WholeField(
        required=False, allow_null=True, min_value=1, max_value=WEIGHT_LIMIT,
        help_text="Starts of a fair key for each start of a key of weight 1. Null: 1.",
    )  # fmt: skip
    note = NoteField()

    def validate(self, rule: dict[str, Any]) -> dict[str, Any]:
        max_running = rule.get("max_running")
        if max_running is not None:
            if rule.get("running", max_running) not in (max_running, None):
                raise serializers.ValidationError({"max_running": ["It is another name of running. Give only one."]})
            rule["running"] = max_running
        if (rule.get("starts") is None) != (rule.get("per_seconds") is None):
            raise serializers.ValidationError({"starts": ["Give starts and per_seconds together."]})
        if all(rule.get(name) is None for name in ("running", "starts", *QUOTAS, "fair", "weight")):
            raise serializers.ValidationError(
                "Give running, starts and per_seconds, fair, weight, or a quota of a namespace."
            )
        return rule


def refuse_misplaced(namespace: str, pattern: str, rule: Mapping[str, Any]) -> None:
    """Raise ValidationError for a quota outside of `namespace:NAME`, or for a rule about another namespace."""
    if not pattern.startswith("namespace:"):
        for name in ("max_running", *QUOTAS):
            if rule.get(name) is not None:
                raise serializers.ValidationError({name: ["Only a rule for `namespace:NAME` may have this field."]})
    elif namespace != DEFAULT_NAMESPACE and not matches(pattern, f"namespace:{namespace}"):
        raise serializers.ValidationError(
            {"pattern": [f"A rule of {namespace} limits its own jobs only: use namespace:{namespace}."]}
        )


def matches(pattern: str, key: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern.endswith(":*") else key == pattern


class LimitAnswer(ModelAnswer):
    max_running = serializers.IntegerField(allow_null=True, help_text="`running` of a rule for a namespace.")

    class Meta:
        model = LimitRule
        fields = (
            "pattern", "namespace", "running", "starts", "per_seconds", "max_running", "max_waiting",
            "submissions_per_minute", "fair", "weight", "note", "by", "created_at", "changed_at",
        )  # fmt: skip


class LimitKeyAnswer(serializers.Serializer):
    key = serializers.CharField()
    used = serializers.IntegerField(help_text="Slots that are held.")
    allowed = serializers.IntegerField(allow_null=True, help_text="Slots of the key; null: any number.")
    parked = serializers.IntegerField(help_text="Jobs and executions that wait for a slot of the key.")
    oldest_at = TimeField(allow_null=True, help_text="Submission of the oldest of them.")


class LimitWithKeysAnswer(LimitAnswer):
    keys = LimitKeyAnswer(many=True, help_text="Keys in use, those with most parked jobs first, at most 500.")

    class Meta(LimitAnswer.Meta):
        fields = (*LimitAnswer.Meta.fields, "keys")  # type: ignore[assignment]


class LimitFilter(PageFilter):
    """Page of rules."""


class LimitPage(serializers.Serializer):
    items = LimitAnswer(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")
