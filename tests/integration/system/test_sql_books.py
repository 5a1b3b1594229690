"""The books of SQL: the heads match what PostgreSQL makes of the statements."""

import re
from io import StringIO
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest
from django.core.checks import Tags
from django.core.checks.registry import registry
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from controlplane.checks import check_books
from controlplane.core import sql_book, sql_rows, statements
from controlplane.core.statements import Statement, Statements, read_rows

APPS = ("liveness", "jobs")
STATEMENTS = [
    (app, block.name) for app in APPS for block in sql_book.load_blocks(app).values() if block.kind == "statement"
]
JIT_ABOVE_COST = 100_000  # the default of PostgreSQL
FOR_MILLIONS = {"make_jobs", "make_servers"}
TYPES = """
    select parameter_types::text[], result_types::text[] from pg_prepared_statements where name = 'of_book'"""
SHORT = {"integer": "int", "double precision": "float8", "timestamp with time zone": "timestamptz", "boolean": "bool"}


def short(type: str) -> str:
    name = type.removesuffix("[]")
    return SHORT.get(name, name) + type[len(name) :]


@pytest.mark.django_db
def test_every_statement_can_be_planned_and_matches_its_head(subtests):
    for app, name in STATEMENTS:
        with subtests.test(f"{app}.{name}"), transaction.atomic():
            assert_matches_its_head(app, name)


def assert_matches_its_head(app, name):
    block = sql_book.load_blocks(app)[name]
    with connection.cursor() as cursor:
        cursor.execute(f"prepare of_book as {sql_book.number_parameters(app, name).replace('%', '%%')}", ())
        cursor.execute(TYPES)
        takes, returns = cursor.fetchone()
        described = connection.connection.pgconn.describe_prepared(b"of_book")
        names = [described.fname(number).decode() for number in range(described.nfields)]
        cursor.execute("deallocate of_book")
        assert list(map(short, takes)) == list(block.takes.values())
        promised = {column: type.removesuffix("|null") for column, type in block.returns.items()}
        assert list(zip(names, map(short, returns or []), strict=True)) == list(promised.items())
        cursor.execute(f"explain (generic_plan) {sql_book.number_parameters(app, name).replace('%', '%%')}", ())


@pytest.mark.django_db
def test_no_statement_on_empty_tables_costs_enough_for_postgresql_to_compile():
    dear = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.django_table_names(only_existing=True):
            # Empty tables instead of those that other tests have filled.
            cursor.execute(f"create temp table {table} (like public.{table} including all) on commit drop")
        for app, name in STATEMENTS:
            numbered = sql_book.number_parameters(app, name).replace("%", "%%")
            cursor.execute(f"explain (generic_plan, format json) {numbered}", ())
            [[plan]] = cursor.fetchone()
            dear[name] = plan["Plan"]["Total Cost"]
    assert {name for name, cost in dear.items() if cost > JIT_ABOVE_COST} == FOR_MILLIONS


@pytest.mark.parametrize("app", APPS)
def test_the_rows_that_mypy_knows_are_those_of_the_heads(app):
    folder = sql_book.ROOT / app / "sql"
    files = [folder / "statements.py", *(folder / "rows").glob("[!_]*.py")]
    on_disk = {str(file.relative_to(folder)): file.read_text() for file in files}
    assert on_disk == sql_rows.write_modules(app), "run python -m controlplane.core.sql_rows"


class OldRow(NamedTuple):
    """A row class of a process that was started before an upgrade."""

    id: UUID
    name: str


@pytest.mark.django_db
def test_a_row_is_read_by_its_names_while_a_table_has_a_column_more():
    with connection.cursor() as cursor:
        cursor.execute("select 1 as added, uuid7() as id, 'one' as name")
        [row] = read_rows(OldRow, cursor)
    assert isinstance(row.id, UUID)
    assert row.name == "one"


def test_statements_that_are_not_as_the_heads_are_refused():
    class Outdated(Statements):
        claim_jobs: Statement[OldRow]

    with pytest.raises(sql_book.BookError, match="sql_rows"):
        Outdated("jobs").check()


def test_migrate_checks_the_books(monkeypatch):
    assert check_books in registry.get_checks()
    assert Tags.database in check_books.tags
    assert check_books() == []
    blocks = {app: dict(sql_book.load_blocks(app)) for app in APPS}
    del blocks["jobs"]["claim_jobs"]
    monkeypatch.setattr(statements, "load_blocks", blocks.get)
    [error] = check_books()
    assert error.id == "controlplane.E011"


def test_no_block_is_there_for_nobody():
    python = "".join(path.read_text() for app in (*APPS, "controlplane") for path in Path(app).rglob("*.py"))
    # Python names a statement; the variant with `_counted` runs if bytes are counted.
    called = set(re.findall(r"""(?:["']|\bsql\.)(\w+)""", python))
    used = {
        name
        for app in APPS
        for block in sql_book.load_blocks(app).values()
        for _, name, _ in sql_book.REFERENCE.findall(block.body)
    }
    for app in APPS:
        names = {name.removesuffix("_counted") for name in sql_book.load_blocks(app)}
        assert names - used - called == set()


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Return a function that writes a book of an app `shop` and checks it."""
    monkeypatch.setattr(sql_book, "ROOT", tmp_path)
    (tmp_path / "shop" / "sql").mkdir(parents=True)

    def check(text):
        (tmp_path / "shop" / "sql" / "orders.sql").write_text(text)
        sql_book.load_blocks.cache_clear()
        sql_book.compose_statement.cache_clear()
        sql_book.check_books("shop")

    yield check
    monkeypatch.undo()
    sql_book.load_blocks.cache_clear()
    sql_book.compose_statement.cache_clear()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select 1", "does not begin with a head"),
        ("-- statement: a\nselect {{b}}", "there is no block shop.b"),
        ("-- statement: a\nselect %(x)s", "`takes` differ in x"),
        ("-- statement: a\n-- takes: x int\nselect 1", "`takes` differ in x"),
        ("-- statement: a\nselect 1\n-- rule: a\n(true)", "has a block of that name"),
        ("-- statement: a\nselect {{b(x)}}\n-- rule: b\n(true)", "b is about no row"),
    ],
)
def test_a_book_that_cannot_be_used_is_refused_and_named(book, text, words):
    with pytest.raises(sql_book.BookError, match=re.escape(words)):
        book(text)


def test_a_rule_is_about_the_row_that_it_is_asked_about(book):
    book(
        "-- statement: a\nselect {{is_old(gone)}} from t gone\n"
        "-- rule: is_old(s)\n(s.age > 3 and {{is_new(s)}})\n-- rule: is_new(j)\nnot j.seen"
    )
    assert sql_book.compose_statement("shop", "a") == "select (gone.age > 3 and not gone.seen) from t gone"


def test_what_a_sweep_is_about_to_touch_is_derived_from_it(book):
    book("-- statement: a\nwith due as (select 1 as id),\n-- due: select id from due\ndone as (select 2)\nselect 3")
    assert sql_book.compose_statement("shop", "a_due") == "with due as (select 1 as id)\nselect id from due"
    assert sql_book.compose_statement("shop", "a") == "with due as (select 1 as id),\ndone as (select 2)\nselect 3"


def test_a_statement_comes_without_its_lines_for_counting_and_with_them(book):
    book("-- statement: a\n-- takes: x int\n-- counted: y int\nselect %(x)s\n-- counted: + %(y)s\nfrom t")
    blocks = sql_book.load_blocks("shop")
    assert sql_book.compose_statement("shop", "a") == "select %(x)s\nfrom t"
    assert sql_book.compose_statement("shop", "a_counted") == "select %(x)s\n+ %(y)s\nfrom t"
    assert (list(blocks["a"].takes), list(blocks["a_counted"].takes)) == (["x"], ["x", "y"])


def test_only_what_counts_bytes_touches_the_table_of_stored_bytes():
    touching = {name for app, name in STATEMENTS if "jobs_storedbytes" in sql_book.compose_statement(app, name)}
    of_book = {name for _, name in STATEMENTS if sql_book.load_blocks("jobs").get(name) and
               sql_book.load_blocks("jobs")[name].book.stem == "stored_bytes"}  # fmt: skip
    assert touching > of_book - {"lock_stored_bytes", "try_lock_stored_bytes", "list_storing_owners"}
    assert all(name.endswith("_counted") for name in touching - of_book) and len(touching - of_book) == 12


@pytest.mark.django_db
def test_the_command_lists_prints_and_plans():
    def run(*arguments):
        call_command("sql", *arguments, stdout=(out := StringIO()))
        return out.getvalue()

    assert "recover_attempts" in run()
    assert run("recover_attempts").startswith("with lost_servers as materialized (")
    assert "for no key update" in run("recover_attempts_due")
    assert " on jobs_workerjob j" in (plan := run("claim_jobs", "--explain")) and "(cost=" in plan
    with pytest.raises(CommandError, match="There is no statement, step or rule 'nonsense'"):
        run("nonsense")


def test_rows_to_change_are_looked_up_by_their_keys_even_without_statistics():
    changed = re.compile(r"(?:update|delete from) (?!liveness_clock)\w+ (\w+)\b")
    joined = []
    for app in APPS:
        for block in sql_book.load_blocks(app).values():
            # Each change by itself: from its table to the end of its common table expression.
            for change in changed.finditer(block.body):
                own = re.split(r"\n *\)|returning", block.body[change.end() :])[0]
                if re.search(rf"where {change[1]}\.\w+ = \w+\.\w+", own):
                    joined.append((block.name, own))
    assert joined == []
