"""The books of SQL: `APP/sql/*.sql`, one for each service, read whole and checked when the control plane starts.

A book holds blocks. A block begins with a head and ends where the next one begins::

    -- statement: retire_servers
    -- Lost servers that hold nothing become NOT_RUNNING.
    -- takes: only uuid[]|null
    -- returns: id uuid, name text, reason text|null
    -- row: RetiredServer

    -- step: end_attempts(held) -> verdicts
    -- Common table expressions that statements share; this one goes on from `held`.

    -- rule: is_lost(s)
    -- An expression; s is the row that it is about.

The columns of `returns` make the class of the rows (sql_rows.py); `row` is its name, where statements share one.

`{{name}}` stands for the block of that name, `{{app.name}}` for one of another app, `{{is_lost(gone)}}` for a rule
about the row `gone`, and `{{NAME}}` for a list of states or of numbers. A statement that sweeps has a line
`-- due: select …`: what stands above it, with this in place of what stands below, lists the ids that the statement is
about to touch.

Rows to update or delete are looked up each by its key, `where j.id = any(array[ended.id])`. A plain `=` leaves
PostgreSQL the choice to read the whole table once for each row of `ended`, and where its statistics know of no rows it
does.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = re.compile(r"-- (statement|step|rule): (\w+)(?:\((\w+(?:, \w+)*)\))?(?: -> (\w+(?:, \w+)*))?")
DUE = re.compile(r"^-- due: (.*)\n", re.MULTILINE)
REFERENCE = re.compile(r"\{\{(?:(\w+)\.)?(\w+)(?:\((\w+(?:, \w+)*)\))?\}\}")
PARAMETER = re.compile(r"%\((\w+)\)s")
STATES: dict[str, str] = {}


class BookError(Exception):
    """A book of SQL that cannot be used; says where and why."""


@dataclass(frozen=True)
class Block:
    """A statement, a step or a rule, as it stands in its book."""

    kind: str
    name: str
    subjects: tuple[str, ...]
    """Of a rule, the rows that it is about; of a step, the step that it goes on from."""
    book: Path
    text: str
    """What it does, in words."""
    takes: dict[str, str]
    """Parameters and their types, of a statement."""
    returns: dict[str, str]
    """Columns and their types, of a statement."""
    row: str
    """What a row of a statement is called, where that is not its own name."""
    body: str

    @property
    def place(self) -> str:
        return f"{self.book.relative_to(ROOT)}, {self.name}"


def define_states(**lists: Iterable[str]) -> None:
    """Name lists of states for use in blocks: `state in {{LIVE}}`."""
    for name, words in lists.items():
        STATES[name] = "(" + ", ".join(f"'{word}'" for word in sorted(words)) + ")"


def define_numbers(**named: float | Iterable[int]) -> None:
    """Name numbers and lists of numbers for use in blocks: `s.timeout * {{FENCE_MARGIN}}`, `array{{BUCKETS}}`."""
    for name, numbers in named.items():
        STATES[name] = f"[{', '.join(map(str, numbers))}]" if isinstance(numbers, Iterable) else str(numbers)


@cache
def load_blocks(app: str) -> dict[str, Block]:
    """Every block of the books of an app. Raises BookError."""
    blocks: dict[str, Block] = {}
    for book in sorted((ROOT / app / "sql").glob("*.sql")):
        for block in read_book(book):
            if block.name in blocks:
                raise BookError(f"{block.place}: {blocks[block.name].book.name} has a block of that name")
            blocks[block.name] = block
    return blocks


def read_book(book: Path) -> list[Block]:
    """The blocks of one file, in their order. Raises BookError."""
    chunks: list[list[str]] = []
    for line in book.read_text().splitlines():
        if HEAD.match(line):
            chunks.append([])
        elif not chunks and line.strip():
            raise BookError(f"{book.relative_to(ROOT)}: begins without a head (-- statement: NAME)")
        if chunks:
            chunks[-1].append(line)
    return [read_block(book, chunk) for chunk in chunks]


def read_block(book: Path, lines: list[str]) -> Block:
    head = HEAD.match(lines[0])
    kind, name, subjects, _ = head.groups() if head else ("", "", "", "")
    words, listed = [], {"takes": "", "returns": "", "row": ""}
    rest = lines[1:]
    last = "text"
    while rest and rest[0].startswith("--") and not DUE.match(rest[0] + "\n"):
        line = rest.pop(0)[2:].strip()
        key, colon, value = line.partition(":")
        if colon and key in listed:
            last, line = key, value
        if last == "text":
            words.append(line)
        else:
            listed[last] += line
    return Block(
        kind,
        name,
        tuple(subjects.split(", ")) if subjects else (),
        book,
        " ".join(words),
        parse_columns(listed["takes"]),
        parse_columns(listed["returns"]),
        listed["row"].strip(),
        "\n".join(rest).strip(),
    )


def parse_columns(listed: str) -> dict[str, str]:
    """`only uuid[]|null, batch int` as names and types."""
    pairs = (part.strip().partition(" ") for part in listed.split(",") if part.strip())
    return {name: type for name, _, type in pairs}


def find_block(app: str, name: str, where: str) -> Block:
    try:
        return load_blocks(app)[name]
    except KeyError:
        raise BookError(f"{where}: there is no block {app}.{name}") from None


@cache
def compose_statement(app: str, name: str) -> str:
    """A block with everything put in. `NAME_due` is what a sweeping statement is about to touch."""
    of_due = name.endswith("_due") and name not in load_blocks(app)
    block = find_block(app, name.removesuffix("_due") if of_due else name, app)
    return fill_references(app, block, select_body(block, of_due))


def select_body(block: Block, of_due: bool) -> str:
    if not of_due:
        return DUE.sub("", block.body)
    above, *due = DUE.split(block.body, maxsplit=1)
    if not due:
        raise BookError(f"{block.place}: it has no line `-- due: select …`")
    return f"{above.rstrip().removesuffix(',')}\n{due[0]}"


def fill_references(app: str, block: Block, body: str) -> str:
    def resolve_reference(match: re.Match[str]) -> str:
        other, name, arguments = match.groups()
        if other is None and name in STATES:
            return STATES[name]
        part = find_block(other or app, name, block.place)
        return fill_references(
            other or app, part, substitute_rows(part, arguments.split(", ") if arguments else [], block.place)
        )

    return REFERENCE.sub(resolve_reference, body)


def substitute_rows(block: Block, rows: list[str], where: str) -> str:
    """The body of a block that is about these rows."""
    if rows and len(rows) != len(block.subjects):
        raise BookError(f"{where}: {block.name} is about {', '.join(block.subjects) or 'no row'}")
    names = {own: row for own, row in zip(block.subjects, rows, strict=False) if own != row}
    if not names:
        return block.body
    own = "|".join(names)

    def rename_row(match: re.Match[str]) -> str:
        return re.sub(rf"\b({own})\b", lambda word: names[word[1]], match[0])

    return re.sub(rf"\b({own})(?=\.)|(?<=\()[^()]*(?=\)\}}\}})", rename_row, block.body)


def check_books(*apps: str) -> None:
    """Refuse names that no block has, and parameters in which a statement and its head differ. Raises BookError."""
    for app in apps:
        for block in load_blocks(app).values():
            text = fill_references(app, block, select_body(block, of_due=False))
            parameters = set(PARAMETER.findall(text))
            if block.kind == "statement" and parameters != block.takes.keys():
                names = ", ".join(sorted(parameters ^ block.takes.keys()))
                raise BookError(f"{block.place}: the statement and its `takes` differ in {names}")


@cache
def number_parameters(app: str, name: str) -> str:
    """A statement with $1, $2, … for its parameters in the order of `takes`, as PREPARE and EXPLAIN want it."""
    order = list(load_blocks(app)[name].takes)
    return PARAMETER.sub(lambda match: f"${order.index(match[1]) + 1}", compose_statement(app, name)).replace("%%", "%")
