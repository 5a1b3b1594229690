"""Plain English in code and documents.

These rules find only symptoms; a reviewer decides whether a text is easy to read. CONTRIBUTING.md explains the style.
Add an exception below only with its reason.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import ROOT

ODD_SHARE = 0.005
"""Share of docstrings that may open oddly, because a rule for first words has false hits."""
ODD_LATER, WORDS, LONG_SENTENCES, LONG_NAMES = 5, 20, 0, 0
"""Limits for the whole tree. They may only go down."""
LONGEST_SENTENCE, LONGEST_NAME = 30, 80

OPENINGS = """
    what how of whether who whose those as that by for none with without where when which whom why from to in on
    at after before until while than since because if so and or but nor not it its they their them he his him she
    her this these one ones nobody nothing everybody everything everyone somebody something someone anybody
    anything each all both any some such no only once there then thus under over between beside beyond within
    among against about like unlike per through across we our us you your i my also else
"""
"""First words of a docstring that are no verb and no noun."""
ODD_LATER_SENTENCE = re.compile(r"[.!?;:]\s+(What|Who|Whose|Those|Of|Whether)\b")
ODD_COMMENT = re.compile(r"(What|Who|Whose|Those|Of|Whether)\b")

INSTEAD = {
    "anew": "again",
    "vigil": "watch",
    "ledger": "record",
    "remains": "leftover files or processes",
    "meanwhile": "until then",
    "whoever, whichever, whomever, whom": "name the person or the process",
    "thereby, therein, whereby, wherein, thereof, hence, lest, upon, ere": "a present-day word",
    "he, him, his, himself, she, her, hers": "they",
    "hear, hears, heard, hearing": "receive",
    "tell, tells, told, telling": "send, report",
    "say, says, said, saying": "return, state, show",
    "witness of, or else, and else, nobody's, somebody's, one's own, of one's": "plain words",
    "there is none, goes on, by and by, as yet, for good, in vain, has it that": "plain words",
    "it is not for": "name the subject",
}
"""Banned words, with what to write instead."""
FOR = r"for (?:it|they|there|he|nobody|nothing|no one) (?:is|are|was|were|has|have|may|can|would|will|could)"
BANNED = re.compile(
    rf"\b(?:{'|'.join(word for words in INSTEAD for word in words.split(', '))}|vigils|ledgers|{FOR})\b"
    r"|, for (?:it|they|there|nobody|nothing|that|this|what|who)\b",
    re.IGNORECASE,
)
ALLOWED = {
    "tests/unit/test_plain_english.py": "lists the banned words",
    "LICENSE": "is not ours to edit",
}
"""Files without these rules, with the reason."""


class Text(NamedTuple):
    place: str
    kind: str
    text: str


@cache
def tracked_files() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    skipped = re.compile(r"/vendor/|/migrations/|\.lock$|axe\.min\.js$")
    return tuple(name for name in listed.splitlines() if name not in ALLOWED and not skipped.search(name))


def read_python(name: str, source: str) -> Iterator[Text]:
    """Yield docstrings and notes below fields, comments, names of tests, and outside of tests also long strings."""
    tree, notes = ast.parse(source), set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for number, item in enumerate(body if isinstance(body, list) else []):
            if (
                isinstance(item, ast.Expr)
                and isinstance(item.value, ast.Constant)
                and isinstance(item.value.value, str)
            ):
                has_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                notes.add(item.value)
                kind = "docstring" if number == 0 and has_docstring else "note"
                yield Text(f"{name}:{item.lineno}", kind, item.value.value)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Text(f"{name}:{node.lineno}", "test name", node.name.replace("_", " "))
        is_string = isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in notes
        if is_string and node.value.count(" ") >= 2 and not name.startswith("tests/"):
            yield Text(f"{name}:{node.lineno}", "string", node.value)
    for number, line in enumerate(source.splitlines(), 1):
        if comment := re.search(r"(?:^|\s)# +(?!noqa|type:|fmt:)([^'\"]*)$", line):
            yield Text(f"{name}:{number}", "comment", comment[1])


def read_other(name: str, source: str) -> Iterator[Text]:
    """Yield the lines of a document or a page, or the comments of another file."""
    kind, lines = "comment", source.splitlines()
    if name.endswith(".md"):
        kind = "document"
        without_code = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), source, flags=re.DOTALL)
        lines = re.sub(r"`[^`\n]*`", "`code`", without_code).splitlines()
        lines = ["" if line.lstrip().startswith(("#", "|", "<")) else line for line in lines]
    elif name.endswith((".html", ".txt")):
        kind = "page"
        markup = r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^>]*>"
        lines = re.sub(markup, lambda match: "\n" * match[0].count("\n") or " ", source, flags=re.DOTALL).splitlines()
    else:
        mark = "--" if name.endswith(".sql") else "#"
        lines = [line.partition(mark)[2].strip() for line in lines]
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield Text(f"{name}:{number}", kind, line)


@cache
def all_texts() -> tuple[Text, ...]:
    readable = re.compile(r"\.(py|sql|md|html|toml|ya?ml|sh|conf|service|env)$|Makefile$|Dockerfile$|^\.ci/run$")
    texts: list[Text] = []
    for name in filter(readable.search, tracked_files()):
        if (path := Path(ROOT, name)).exists():  # a deleted file stays listed until the next commit
            read = read_python if name.endswith(".py") else read_other
            texts += read(name, path.read_text())
    return tuple(texts)


def refuse_more(found: list[str], limit: float, what: str) -> None:
    assert len(found) <= limit, f"{len(found)} {what}, and at most {limit:.0f} are allowed:\n" + "\n".join(found)


def refuse_odd_docstrings():
    docstrings = [text for text in all_texts() if text.kind == "docstring"]
    first_words = ((text, re.match(r"\W*(\w+)", text.text)) for text in docstrings)
    odd = [
        f"{text.place}: {text.text[:60]!r}"
        for text, word in first_words
        if word and word[1].lower() in OPENINGS.split()
    ]
    refuse_more(odd, ODD_SHARE * len(docstrings), "docstrings open with a pronoun, a relative word or a preposition")


def refuse_odd_later_sentences():
    odd = [
        f"{text.place}: {text.text[:60]!r}"
        for text in all_texts()
        if (text.kind == "docstring" and ODD_LATER_SENTENCE.search(text.text))
        or (text.kind == "comment" and ODD_COMMENT.match(text.text))
    ]
    refuse_more(odd, ODD_LATER, "sentences open with a relative word")


def refuse_banned_words():
    found = [f"{text.place}: {match[0]!r}" for text in all_texts() for match in BANNED.finditer(text.text)]
    refuse_more(found, WORDS, f"banned words; write instead: {INSTEAD}")


def refuse_long_sentences():
    long = [
        f"{text.place}: {len(sentence.split())} words: {sentence[:60]!r}"
        for text in all_texts()
        if text.kind == "document" and not text.place.startswith("CHANGELOG.md")
        for sentence in re.split(r"(?<=[.!?])\s+", text.text)
        if len(sentence.split()) > LONGEST_SENTENCE
    ]
    refuse_more(long, LONG_SENTENCES, "sentences are too long")


def refuse_long_names():
    long = [text.place for text in all_texts() if text.kind == "test name" and len(text.text) > LONGEST_NAME]
    refuse_more(long, LONG_NAMES, "names of tests are too long")


# One test, because all texts are read once for all rules.
def test_texts_and_names_keep_the_rules_of_plain_english(subtests):
    rules = [refuse_odd_docstrings, refuse_odd_later_sentences, refuse_banned_words, refuse_long_sentences]
    for rule in [*rules, refuse_long_names]:
        with subtests.test(rule.__name__):
            rule()
