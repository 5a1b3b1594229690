"""Calls that share a statement: each gets its own answer, and nobody waits for more than the one before."""

import threading

import pytest

from controlplane.together import Together


def in_threads(number, call):
    """Call it in so many threads at once, with their numbers; what each got, or what it raised."""
    got = [None] * number

    def run(place):
        try:
            got[place] = call(place)
        except ValueError as error:
            got[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return got


def test_one_alone_is_said_at_once():
    said = []
    together = Together(lambda numbers: said.append(numbers) or [number * 2 for number in numbers], patience=30)
    assert [together(1), together(2)] == [2, 4]
    assert said == [[1], [2]]


def test_who_comes_while_a_statement_is_under_way_shares_the_next():
    said, others_wait = [], threading.Event()

    def say(numbers):
        said.append(sorted(numbers))
        if len(said) == 1:
            assert others_wait.wait(30)
        return [number * 2 for number in numbers]

    together = Together(say, patience=30)
    first = threading.Thread(target=together, args=(100,))
    first.start()
    while not said:
        pass
    waiting = threading.Thread(target=lambda: in_threads(8, together))
    waiting.start()
    while len(together._open.said) < 8:
        pass
    others_wait.set()
    waiting.join(30)
    first.join(30)
    assert said == [[100], list(range(8))]


def test_each_of_many_gets_its_own_answer():
    together = Together(lambda numbers: [number * 2 for number in numbers], patience=30)
    for _ in range(50):
        assert in_threads(16, together) == [number * 2 for number in range(16)]


def test_what_fails_fails_for_all_who_shared_it_and_for_nobody_after():
    broken = True

    def say(numbers):
        if broken:
            raise ValueError("it is down")
        return numbers

    together = Together(say, patience=30)
    assert all(isinstance(error, ValueError) for error in in_threads(4, together))
    broken = False
    assert together(7) == 7


def test_who_waits_while_it_fails_does_not_wait_as_long_again():
    said, others_wait = [], threading.Event()

    def say(numbers):
        said.append(numbers)
        assert others_wait.wait(30)
        raise ValueError("it is down")

    together = Together(say, patience=30)
    got = []
    all_ = threading.Thread(target=lambda: got.extend(in_threads(8, together)))
    all_.start()
    while not said or len(said[0]) + len(together._open.said) < 8:
        pass
    others_wait.set()
    all_.join(30)
    assert len(said) == 1
    assert [str(error) for error in got] == ["it is down"] * 8


@pytest.fixture
def hung():
    """Calls of which the first hang; how many statements there were, and what ends the hang."""
    said, ends = [], threading.Event()

    def say(numbers):
        said.append(sorted(numbers))
        assert 0 not in numbers or ends.wait(30)
        return numbers

    together = Together(say, patience=0.5)
    first = threading.Thread(target=together, args=(0,))
    first.start()
    while not said:
        pass
    yield together, said
    ends.set()
    first.join(30)
    assert not first.is_alive(), "who hung is answered at last"


def test_who_waits_for_a_statement_that_hangs_is_said_by_another_when_his_patience_ends(hung):
    together, said = hung
    assert together(1) == 1
    assert said == [[0], [1]]


def test_after_the_first_timeout_nobody_waits_for_the_statement_that_hangs(hung, monkeypatch):
    together, _ = hung
    together(1)
    waits = []
    monkeypatch.setattr(threading.Event, "wait", lambda *args: waits.append(args))
    assert [together(number) for number in range(2, 1000)] == list(range(2, 1000))
    assert waits == []


def test_each_statement_that_hangs_costs_a_patience_once(hung):
    together, said = hung
    another = threading.Thread(target=together, args=(0,))
    another.start()
    while len(said) < 2:
        pass
    assert [together(number) for number in (1, 2, 3)] == [1, 2, 3]
    assert said == [[0], [0], [1], [2], [3]]


def test_who_is_in_a_statement_that_hangs_is_not_kept_waiting_for_ever():
    said, hangs = [], threading.Event()

    def say(numbers):
        said.append(sorted(numbers))
        assert hangs.wait(30)
        return numbers

    together, got = Together(say, patience=0.2), []

    def call(number):
        try:
            got.append(together(number))
        except TimeoutError:
            got.append("timeout")

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    threads[0].start()
    while not said:
        pass
    for thread in threads[1:]:
        thread.start()
    while sum(map(len, said)) < 8 or len(got) < 8 - len(said):
        pass
    assert got == ["timeout"] * (8 - len(said)), "all but those who say it for others"
    hangs.set()
    for thread in threads:
        thread.join(30)
    assert len(got) == 8


def test_a_missing_answer_is_an_error_and_not_somebody_elses():
    with pytest.raises(ValueError, match="0 answers to 1 calls"):
        Together(lambda numbers: [], patience=30)(1)
