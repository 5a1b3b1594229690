"""Number of calls that a web process answers at once."""

import os
import resource

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane.serving import process_limits


@pytest.mark.parametrize(
    ("cores", "pool", "threads"), [(1, 8, 3), (2, 8, 5), (4, 8, 6), (64, 8, 6), (64, 32, 8), (2, 4, 3), (8, 0, 8)]
)
def test_there_are_as_many_threads_as_suit_the_machine_and_two_connections_left(
    monkeypatch, settings, cores, pool, threads
):
    monkeypatch.delenv("WEB_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setitem(settings.DATABASES["default"]["OPTIONS"], "pool", pool and {"max_size": pool})
    assert process_limits.threads() == threads


def test_the_environment_sets_another_number(monkeypatch):
    monkeypatch.setenv("WEB_THREADS", "12")
    assert process_limits.threads() == 12


@pytest.mark.parametrize("text", ["2", "-3", "x", "3.5"])
def test_an_invalid_number_is_refused_with_what_is_allowed(monkeypatch, text):
    monkeypatch.setenv("WEB_THREADS", text)
    with pytest.raises(ImproperlyConfigured, match=r"WEB_THREADS.*3 or more"):
        process_limits.threads()


def test_the_limit_of_sockets_is_raised_as_far_as_it_may_be(monkeypatch):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    process_limits.raise_limit_of_sockets()
    assert limits == [(4096, 4096)]
