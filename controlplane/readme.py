"""`python -m controlplane.readme` writes the generated parts of docs/: state diagrams and settings.

What the documentation says of states and settings comes from the tables and the dataclasses themselves.
"""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterable
from enum import EnumType
from pathlib import Path
from typing import Any

from controlplane.core.durations import format_duration
from jobs import states as job_states
from jobs.conf import AlertsSettings, JobsSettings
from liveness import states
from liveness.conf import LivenessSettings

README = Path(__file__).resolve().parent.parent / "README.md"
PAGES = [README.parent / "docs" / name for name in ("alerts.md", "reference.md", "settings.md")]
"""Those with generated parts."""
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
LETTERS = {states.Mover.SERVER: "S", states.Mover.LIVENESS: "C", states.Mover.OPERATOR: "O"}


def draw_state_diagram(table: dict[Any, Any], initial: Iterable[str], terminal: Iterable[str] = ()) -> str:
    """A table of transitions as a Mermaid state diagram; movers, where the table has them, as labels."""
    lines = ["```mermaid", "stateDiagram-v2", *(f"    [*] --> {state}" for state in sorted(initial))]
    for from_, onward in table.items():
        for to in sorted(onward):
            movers = sorted(LETTERS[mover] for mover in onward[to]) if isinstance(onward, dict) else []
            lines.append(f"    {from_} --> {to}" + (f" : {' / '.join(movers)}" if movers else ""))
    lines += [f"    {state} --> [*]" for state in sorted(terminal)]
    return "\n".join([*lines, "```"])


def format_settings_table(schema: type[Any], name: str) -> str:
    """A dataclass of settings as a table: key, default, and the docstring under the field."""
    tree = ast.parse(inspect.getsource(schema)).body[0]
    assert isinstance(tree, ast.ClassDef)  # noqa: S101 - the source of a class
    texts = [
        statement.value.value
        for statement in tree.body[1:]
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    ]
    rows = [f"| `{name}` key | default | |", "|---|---|---|"]
    fields = dataclasses.fields(schema)
    for field, text in zip(fields, map(str, texts[-len(fields) :]), strict=True):
        choices = f" One of {', '.join(field.type)}." if isinstance(field.type, EnumType) else ""  # type: ignore[arg-type]
        rows.append(f"| `{field.name.upper()}` | {format_default(field)} | {text}{choices} |")
    return "\n".join(rows)


def format_default(field: dataclasses.Field[Any]) -> str:
    is_duration = "seconds" in str(field.type) or "Seconds" in str(field.type)
    if isinstance(field.default, float) and not is_duration:
        return f"{field.default:.3g}"
    return format_duration(field.default) if is_duration else str(field.default)  # type: ignore[arg-type]


def generate_parts() -> dict[str, str]:
    return {
        "servers": draw_state_diagram(states.TRANSITIONS, [states.INITIAL]),
        "jobs": draw_state_diagram(job_states.JOB_TRANSITIONS, job_states.JOB_INITIAL, job_states.TERMINAL),
        "attempts": draw_state_diagram(
            job_states.ATTEMPT_TRANSITIONS,
            job_states.ATTEMPT_INITIAL,
            [state for state, onward in job_states.ATTEMPT_TRANSITIONS.items() if not onward],
        ),
        "liveness": format_settings_table(LivenessSettings, "LIVENESS"),
        "jobs_settings": format_settings_table(JobsSettings, "JOBS"),
        "alerts_settings": format_settings_table(AlertsSettings, "ALERTS"),
    }


def fill_page(text: str) -> str:
    """A page with its generated parts as they are to be."""
    made = generate_parts()
    return PART.sub(lambda match: f"{match[1]}{made[match[2]]}\n{match[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill_page(page.read_text()))
