"""Generator of the row classes of all statements, from the heads of the books.

`python -m controlplane.core.sql_rows` writes APP/sql/rows/BOOK.py for each book, and APP/sql/statements.py. These files
give mypy the type of each column. A test checks that they match the heads.
"""

from controlplane.core.sql_book import ROOT, Block, BookError, load_blocks

APPS = ("liveness", "jobs")
TYPES = {
    "uuid": "UUID", "text": "str", "int": "int", "bigint": "int", "float8": "float", "bool": "bool",
    "timestamptz": "datetime", "jsonb": "str", "void": "str",
}  # fmt: skip
"""Python types of the column types. JSON stays text: Django decodes it for models, and other code does not need its
value."""
IMPORTS = {"datetime": "from datetime import datetime", "UUID": "from uuid import UUID"}


def type_of(column: str) -> str:
    """Return the Python type of a column such as `uuid[]|null`."""
    name, _, null = column.partition("|")
    python = TYPES[name.removesuffix("[]")]
    python = f"list[{python}]" if name.endswith("[]") else python
    return f"{python} | None" if null else python


def row_name(block: Block) -> str:
    if block.returns == {"id": "uuid"}:
        return "IdRow"
    return block.row or "".join(word.capitalize() for word in block.name.split("_")) + "Row"


def write_modules(app: str) -> dict[str, str]:
    """Return the texts of statements.py and of rows/BOOK.py for each book with row classes.

    Raise BookError if two heads use the same class name for different rows.
    """
    rows: dict[str, dict[str, str]] = {}
    books: dict[str, list[str]] = {}
    listed = []
    homes = {"IdRow": "IdRow"}
    for block in load_blocks(app).values():
        if block.kind != "statement":
            continue
        name, book = row_name(block), block.book.stem
        if rows.setdefault(name, block.returns) != block.returns:
            raise BookError(f"{block.place}: another statement returns other columns as {block.row}")
        if name not in homes:
            homes[name] = f"{book}.{name}"
            books.setdefault(book, []).append(write_class(name, block.returns))
        listed.append(f"    {block.name}: Statement[{homes[name]}]")
    written_by = f"Written by `python -m {__spec__.name}`."
    modules = {f"rows/{book}.py": write_rows(book, classes, written_by) for book, classes in books.items()}
    modules["statements.py"] = "\n".join(
        [
            f'"""The statements of the books here. {written_by}"""',
            "",
            "from controlplane.core.statements import IdRow, Statement, Statements",
            f"from {app}.sql.rows import (",
            *[f"    {book}," for book in sorted(books)],
            ")",
            "",
            "",
            f"class {app.capitalize()}Statements(Statements):",
            *listed,
            "",
        ]
    )
    return modules


def write_class(name: str, columns: dict[str, str]) -> str:
    lines = [f"    {column}: {type_of(type)}" for column, type in columns.items()]
    return "\n".join([f"class {name}(NamedTuple):", *(lines or ["    pass"])])


def write_rows(book: str, classes: list[str], written_by: str) -> str:
    text = "\n\n\n".join(classes)
    used = {name: line for name, line in IMPORTS.items() if name in text}
    imports = [line for line in (used.get("datetime"), "from typing import NamedTuple", used.get("UUID")) if line]
    return "\n".join([f'"""The rows of {book}.sql. {written_by}"""', "", *imports, f"\n\n{text}\n"])


if __name__ == "__main__":
    for app in APPS:
        folder = ROOT / app / "sql"
        for former in (folder / "rows").glob("[!_]*.py"):
            former.unlink()
        for name, text in write_modules(app).items():
            (folder / name).write_text(text)
