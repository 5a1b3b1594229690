"""The rows of the statements, as the heads of the books say: `python -m controlplane.core.sql_rows` writes
APP/sql/rows.py and statements.py, from which mypy knows each column. A test holds that they are as the heads are."""

from controlplane.core.sql_book import ROOT, Block, BookError, load_blocks

APPS = ("liveness", "jobs")
TYPES = {
    "uuid": "UUID", "text": "str", "int": "int", "bigint": "int", "float8": "float", "bool": "bool",
    "timestamptz": "datetime", "jsonb": "str", "void": "str",
}  # fmt: skip
"""What Python gets. JSON comes as text: Django reads it where a model has it, and nobody else."""
IMPORTS = {"datetime": "from datetime import datetime", "UUID": "from uuid import UUID"}


def type_of(column: str) -> str:
    """`uuid[]|null` as Python has it."""
    name, _, null = column.partition("|")
    python = TYPES[name.removesuffix("[]")]
    python = f"list[{python}]" if name.endswith("[]") else python
    return f"{python} | None" if null else python


def row_name(block: Block) -> str:
    if block.returns == {"id": "uuid"}:
        return "IdRow"
    return block.row or "".join(word.capitalize() for word in block.name.split("_")) + "Row"


def write_modules(app: str) -> dict[str, str]:
    """The texts of APP/sql/rows.py and statements.py. Raises BookError where two heads give one name to different
    rows."""
    statements = [block for block in load_blocks(app).values() if block.kind == "statement"]
    rows: dict[str, dict[str, str]] = {}
    for block in statements:
        if rows.setdefault(row_name(block), block.returns) != block.returns:
            raise BookError(f"{block.place}: another statement returns other columns as {block.row}")
    classes = []
    for name, columns in rows.items():
        lines = [f"    {column}: {type_of(type)}" for column, type in columns.items()]
        classes.append("\n".join([f"class {name}(NamedTuple):", *(lines or ["    pass"])]))
    text = "\n\n\n".join(classes)
    used = [line for name, line in IMPORTS.items() if name in text]
    listed = [f"    {block.name}: Statement[rows.{row_name(block)}]" for block in statements]
    written_by = f"Written by `python -m {__spec__.name}`."
    return {
        "rows.py": "\n".join(
            [
                f'"""The rows that the statements of the books here return. {written_by}"""',
                "",
                *used[:1],
                "from typing import NamedTuple",
                *used[1:],
                f"\n\n{text}\n",
            ]
        ),
        "statements.py": "\n".join(
            [
                f'"""The statements of the books here. {written_by}"""',
                "",
                "from controlplane.core.statements import Statement, Statements",
                f"from {app}.sql import rows",
                "",
                "",
                f"class {app.capitalize()}Statements(Statements):",
                *listed,
                "",
            ]
        ),
    }


if __name__ == "__main__":
    for app in APPS:
        for name, text in write_modules(app).items():
            (ROOT / app / "sql" / name).write_text(text)
