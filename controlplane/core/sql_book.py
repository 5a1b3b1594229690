"""Books of SQL: `APP/sql/*.sql`, one per service. A process reads them when it runs its first statement. `migrate`,
`check --database` and the tests check them.

A book consists of blocks. A block begins with a head, and ends where the next block begins::

    -- statement: retire_servers
    -- Mark lost servers without work NOT_RUNNING.
    -- takes: only uuid[]|null
    -- returns: id uuid, name text, reason text|null
    -- row: RetiredServer

    -- step: end_attempts(held) -> ended_attempts
    -- Common table expressions that statements share; this one continues from `held`.

    -- rule: is_lost(s)
    -- Expression about the row s.

A frequent statement has the head `-- prepared statement: NAME`: each connection plans it once (prepared.py).

The columns in `returns` define the class of the rows (sql_rows.py). `row` names this class if statements share it.

A statement with a line `-- counted:` in its head has two variants. NAME leaves out the lines that begin with `--
counted: `. NAME_counted includes them, and also takes the parameters listed in its head. So installations that do not
need this work do not pay for it.

`{{name}}` inserts the block of that name. `{{app.name}}` inserts a block of another app, `{{is_lost(gone)}}` inserts a
rule about the row `gone`, and `{{NAME}}` inserts a list of states or numbers. A sweeping statement has a line `-- due:
select …`. The text above this line, followed by this select, lists the ids that the statement would change.

Statements look up each row to update or delete by its key: `where j.id = any(array[ended.id])`. With a plain `=`,
PostgreSQL may read the whole table once for each row of `ended` if its statistics count no rows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
HEAD = re.compile(
    r"-- (prepared (?=statement))?(statement|step|rule): (\w+)(?:\((\w+(?:, \w+)*)\))?(?: -> (\w+(?:, \w+)*))?"
)
COUNTED = "-- counted: "
DUE = re.compile(r"^-- due: (.*)\n", re.MULTILINE)
REFERENCE = re.compile(r"\{\{(?:(\w+)\.)?(\w+)(?:\((\w+(?:, \w+)*)\))?\}\}")
PARAMETER = re.compile(r"%\((\w+)\)s")
STATES: dict[str, str] = {}


class BookError(Exception):
    """A book of SQL is invalid. The message names the place and the reason."""


@dataclass(frozen=True)
class Block:
    """Block of a book: a statement, a step or a rule."""

    kind: str
    name: str
    subjects: tuple[str, ...]
    """Names of the rows that a rule is about, or of the step that this step continues from."""
    book: Path
    text: str
    """Sentences in the head that describe the block."""
    takes: dict[str, str]
    """Parameters of a statement and their types."""
    returns: dict[str, str]
    """Columns of a statement's rows and their types."""
    row: str
    """Class name of a statement's rows, if it differs from the statement's name."""
    body: str
    counted: dict[str, str] | None = None
    """Additional parameters of the variant NAME_counted. None means that there is no such variant."""
    is_prepared: bool = False

    @cached_property
    def place(self) -> str:
        return f"{self.book.relative_to(ROOT)}, {self.name}"


def define_states(**lists: Iterable[str]) -> None:
    """Define lists of states for use in blocks: `state in {{LIVE}}`."""
    for name, words in lists.items():
        STATES[name] = "(" + ", ".join(f"'{word}'" for word in sorted(words)) + ")"


def define_numbers(**named: float | Iterable[int]) -> None:
    """Define numbers and lists of numbers for use in blocks: `s.timeout * {{FENCE_MARGIN}}`, `array{{BUCKETS}}`."""
    for name, numbers in named.items():
        STATES[name] = f"[{', '.join(map(str, numbers))}]" if isinstance(numbers, Iterable) else str(numbers)


@cache
def load_blocks(app: str) -> Mapping[str, Block]:
    """Return all blocks of an app's books, in the order of the files. Raise BookError."""
    blocks: dict[str, Block] = {}
    for book in sorted((ROOT / app / "sql").glob("*.sql")):
        for block in read_book(book):
            for variant in list_variants(block):
                if variant.name in blocks:
                    raise BookError(f"{block.place}: {blocks[variant.name].book.name} has a block of that name")
                blocks[variant.name] = variant
    return MappingProxyType(blocks)


def list_variants(block: Block) -> Iterator[Block]:
    """Yield a block without its counting lines. If its head has `counted`, also yield the variant with these lines."""
    lines = block.body.split("\n")
    yield replace(block, body="\n".join(line for line in lines if not line.startswith(COUNTED)))
    if block.counted is not None:
        body = "\n".join(line.removeprefix(COUNTED) for line in lines)
        row = block.row or block.name.title().replace("_", "") + "Row"
        yield replace(block, name=f"{block.name}_counted", takes={**block.takes, **block.counted}, body=body, row=row)


def read_book(book: Path) -> list[Block]:
    """Return the blocks of one file in their order. Raise BookError."""
    chunks: list[list[str]] = []
    for line in book.read_text().splitlines():
        if HEAD.match(line):
            chunks.append([])
        elif not chunks and line.strip():
            raise BookError(f"{book.relative_to(ROOT)}: does not begin with a head (-- statement: NAME)")
        if chunks:
            chunks[-1].append(line)
    return [read_block(book, chunk) for chunk in chunks]


def read_block(book: Path, lines: list[str]) -> Block:
    head = HEAD.match(lines[0])
    prepared, kind, name, subjects, _ = head.groups() if head else ("", "", "", "", "")
    words, listed = [], {"takes": "", "returns": "", "row": "", "counted": ""}
    has_variant = False
    rest = lines[1:]
    last = "text"
    while rest and rest[0].startswith("--") and not DUE.match(rest[0] + "\n"):
        line = rest.pop(0)[2:].strip()
        key, colon, value = line.partition(":")
        if colon and key in listed:
            last, line = key, value
            has_variant |= key == "counted"
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
        parse_columns(listed["counted"]) if has_variant else None,
        bool(prepared),
    )


def parse_columns(listed: str) -> dict[str, str]:
    """Return names and types of a text such as `only uuid[]|null, batch int`."""
    pairs = (part.strip().partition(" ") for part in listed.split(",") if part.strip())
    return {name: type for name, _, type in pairs}


def find_block(app: str, name: str, where: str) -> Block:
    try:
        return load_blocks(app)[name]
    except KeyError:
        raise BookError(f"{where}: there is no block {app}.{name}") from None


@cache
def compose_statement(app: str, name: str) -> str:
    """Return the text of a block with all references filled in. For `NAME_due`, return the query of the due ids."""
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
    """Return the body of a block with its row names replaced by `rows`."""
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
    """Check all references, and that each statement uses exactly the parameters of its head. Raise BookError."""
    for app in apps:
        for block in load_blocks(app).values():
            text = fill_references(app, block, select_body(block, of_due=False))
            parameters = set(PARAMETER.findall(text))
            if block.kind == "statement" and parameters != block.takes.keys():
                names = ", ".join(sorted(parameters ^ block.takes.keys()))
                raise BookError(f"{block.place}: the statement and its `takes` differ in {names}")


@cache
def number_parameters(app: str, name: str) -> str:
    """Return a statement with parameters $1, $2, … in the order of `takes`, for PREPARE and EXPLAIN."""
    order = list(load_blocks(app)[name].takes)
    return PARAMETER.sub(lambda match: f"${order.index(match[1]) + 1}", compose_statement(app, name)).replace("%%", "%")
