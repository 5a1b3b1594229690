"""Queries that are compiled once, with placeholders for values that are known only when they run."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from django.db import connection

from controlplane.core.composed import ComposedRows, Given
from liveness.models import Server
from tests.support.queries import CapturedQueries


@pytest.fixture
def one(worker):
    worker(name="another 100 %s")
    return Server.objects.select_related("token").get(pk=worker(name="one").id)


def test_the_rows_are_those_of_the_same_query_with_all_that_it_reads_beside_them(one):
    rows = Server.objects.select_related("token").prefetch_related("attempts").exclude(name="100 %s")
    composed = ComposedRows(rows.filter(pk=Given("server")))
    for _ in range(2):
        with CapturedQueries(connection) as queries:
            [row] = composed.fetch(server=one.pk)
            assert (row, row.tags, row.token, list(row.attempts.all())) == (one, one.tags, one.token, [])
        assert len(queries) == 2
    assert composed.fetch(server=uuid4()) == []


def test_a_query_stands_in_a_place_with_what_it_asks_for(one):
    composed = ComposedRows(
        Server.objects.filter(state__in=["CREATED", "RUNNING"], pk__in=Given("some")).order_by("name")
    )
    for names, found in ((["one"], ["one"]), (["one", "another 100 %s"], ["another 100 %s", "one"]), ([], [])):
        assert [row.name for row in composed.fetch(some=Server.objects.filter(name__in=names).values("pk"))] == found


def test_each_thread_asks_by_a_connection_of_its_own(committed):
    one = Server.objects.get(pk=committed(name="one").id)
    composed = ComposedRows(Server.objects.filter(pk=Given("server")))

    def ask(_):
        try:
            return composed.fetch(server=one.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(ask, range(4))] == [[one]] * 4
