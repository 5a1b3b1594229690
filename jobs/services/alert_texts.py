"""Texts of alert messages, in the form that each kind of chat service needs.

Everybody with a token may choose names of servers, clusters and jobs. A chat must show these names unchanged, without
links, mentions or markup, and must not refuse the message.
"""

import re
from collections.abc import Iterator
from typing import Any

from controlplane.agent.clean_text import CONTROL

TEXT, HTML = "text", "html"
"""Formats of Apprise. It escapes a text that it converts. Its third format is `markdown`."""
RENDERS_TEXT = {
    *("discord", "fluxer", "guilded", "hassio", "hassios", "mmost", "mmosts", "nctalk", "nctalks", "revolt", "ryver"),
    *("stoat", "zulip"),
}
"""Apprise services that show a text as Markdown, though their format is `text`."""
VERBATIM = {"zulip"}
"""Markdown services without escapes. They show a block of code unchanged."""
ESCAPES_ANGLES = {"slack"}
"""Apprise services that escape < in a text."""
FOR_PROGRAMS = {
    *("amqp", "amqps", "apprise", "apprises", "form", "forms", "json", "jsons", "mailto", "mailtos", "mqtt", "mqtts"),
    *("syslog", "xml", "xmls"),
}
"""Apprise services whose reader is a program or a mailbox. They have no mentions."""
MARKUP = re.compile(r"([\\`*_~|\[\]<>#])")
MENTION = re.compile(r"(?<![\w.])@(?=[\w*&!])")
"""An @ that a chat takes for a mention. A mention notifies people, in the worst case everybody in a channel."""
ANGLE = re.compile(r"<(?=[^\s<>])")
"""The beginning of text that some chats take for a mention or a link: `<!channel>`, `<users/all>`, `<at …>`."""
LABELS = {
    "rule": "Rule",
    "reason": "Reason",
    "severity": "Severity",
    "opened_at": "Started",
    "ended_at": "Ended",
    "incident": "Incident",
}
EVENTS = {"incident.opened": "", "incident.updated": "Update: ", "incident.ended": "Ended: ", "test": "Test: "}
BREAK = "\u200b"
"""Space without width. People see the unchanged text, but the chat service finds no mention."""


def describe_message(payload: dict[str, Any]) -> tuple[str, str]:
    """Return subject and text."""
    data = payload["data"]
    subject = f"[{data['instance']}] {EVENTS[payload['type']]}{data['summary']}"
    return CONTROL.sub(" ", subject), add_link("\n".join(CONTROL.sub(" ", line) for line in list_lines(data)), payload)


def list_lines(data: dict[str, Any]) -> Iterator[str]:
    yield data["summary"]
    yield ""
    yield f"Instance: {data['instance']}"
    for key, label in LABELS.items():
        if data.get(key):
            yield f"{label}: {data[key]}"
    details = data.get("details") or {}
    for server in details.get("servers") or []:
        yield f"Server: {server['name']}" + (f" on {server['hostname']}" if server.get("hostname") else "")
    for job in details.get("jobs") or []:
        yield f"Job: {job['name']} {job['id']}" if job.get("name") else f"Job: {job['id']}"
    for execution in details.get("executions") or []:
        yield f"Execution: {execution['name']} {execution['id']}"


def add_link(text: str, payload: dict[str, Any]) -> str:
    """Return the text with the address of its page in the console, if that is known."""
    url = payload["data"].get("url")
    return f"{text}\nLink: {url}" if url else text


def describe_safely(payload: dict[str, Any]) -> str:
    """Return a subject that has no name in it, for chats that show a subject as markup."""
    data = payload["data"]
    severity = f"{data['severity'].capitalize()}: " if data.get("severity") else ""
    return f"[{data['instance']}] {EVENTS[payload['type']]}{severity}{data['rule'].replace('_', ' ')}"


def write_for_service(scheme: str, format: str, payload: dict[str, Any]) -> tuple[str, str]:
    """Return subject and text for an Apprise service, before Apprise converts the text to `format`."""
    subject, text = describe_message(payload)
    if scheme in FOR_PROGRAMS:
        return subject, text
    if format != TEXT or scheme in RENDERS_TEXT:
        subject = describe_safely(payload)
    # The link comes last and is not escaped. Escapes would break it, and all names in it are already quoted.
    text = "\n".join(CONTROL.sub(" ", line) for line in list_lines(payload["data"]))
    subject, text = MENTION.sub(f"@{BREAK}", subject), MENTION.sub(f"@{BREAK}", text)
    if scheme in VERBATIM:
        return subject, add_link(f"```\n{text.replace('```', f'`{BREAK}`{BREAK}`')}\n```", payload)
    if format == TEXT and scheme in RENDERS_TEXT:
        text = MARKUP.sub(r"\\\1", text)
    if format != HTML and not (format == TEXT and scheme in ESCAPES_ANGLES):
        subject, text = ANGLE.sub(f"<{BREAK}", subject), ANGLE.sub(f"<{BREAK}", text)
    return subject, add_link(text, payload)
