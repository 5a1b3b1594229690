"""Writer of the generated parts of docs/: `python -m controlplane.readme` writes state diagrams, settings, llms.txt.

They come from the tables of transitions, the dataclasses of settings and the first lines of the pages.
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
PAGES = [README.parent / "docs/reference" / name for name in ("alerts.md", "settings.md", "states.md")]
"""Pages with generated parts."""
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
LLMS = README.parent / "docs/llms.txt"
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
FENCED = re.compile(r"```.*?```", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?:]) ")
LETTERS = {states.Mover.SERVER: "S", states.Mover.LIVENESS: "C", states.Mover.OPERATOR: "O"}


def draw_state_diagram(table: dict[Any, Any], initial: Iterable[str], terminal: Iterable[str] = ()) -> str:
    """Return a table of transitions as a Mermaid state diagram. Movers, if the table has them, are the labels."""
    lines = ["```mermaid", "stateDiagram-v2", *(f"    [*] --> {state}" for state in sorted(initial))]
    for from_, onward in table.items():
        for to in sorted(onward):
            movers = sorted(LETTERS[mover] for mover in onward[to]) if isinstance(onward, dict) else []
            lines.append(f"    {from_} --> {to}" + (f" : {' / '.join(movers)}" if movers else ""))
    lines += [f"    {state} --> [*]" for state in sorted(terminal)]
    return "\n".join([*lines, "```"])


def format_settings_table(schema: type[Any], name: str) -> str:
    """Return a dataclass of settings as a Markdown table: key, default, and the docstring under the field."""
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
        rows.append(f"| `{field.name.upper()}` | {format_default(field)} | {' '.join(text.split())}{choices} |")
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
    """Return a page with its generated parts up to date."""
    made = generate_parts()
    return PART.sub(lambda match: f"{match[1]}{made[match[2]]}\n{match[3]}", text)


def list_pages() -> str:
    """Return docs/llms.txt, the list of all pages for language models (llmstxt.org)."""
    docs = LLMS.parent
    lines = ["# Control plane", "", f"> {summarise(docs / 'index.md')}"]
    folders = ["", "tutorial", "how-to", "reference", "explanation", "decisions"]
    for folder in folders:
        lines += ["", f"## {folder.capitalize() or 'Start'}", ""]
        for page in sorted((docs / folder).glob("*.md")):
            title = page.read_text().partition("\n")[0].removeprefix("# ")
            lines.append(f"- [{title}]({page.relative_to(docs)})" + (f": {text}" if (text := summarise(page)) else ""))
    return "\n".join([*lines, ""])


def summarise(page: Path) -> str:
    """Return the first sentence of a page as plain text, or an empty text."""
    for paragraph in FENCED.sub("", page.read_text()).split("\n\n")[1:]:
        if paragraph.strip()[:1] not in "#<|->*!1":
            text = " ".join(LINK.sub(r"\1", paragraph).split())
            return SENTENCE.split(text)[0].rstrip(".:") + "."
    return ""


if __name__ == "__main__":
    LLMS.write_text(list_pages())
    for page in PAGES:
        page.write_text(fill_page(page.read_text()))
