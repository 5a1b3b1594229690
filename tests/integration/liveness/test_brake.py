"""The brake: if many servers of one type fall silent at once, the cause is probably not the servers."""

import pytest

from jobs.services.liveness_check import check_liveness
from liveness.models import Brake, Server, ServerEvent
from tests.support.http import Worker

INTERVAL = 10


@pytest.fixture
def fleet(worker):
    """Workers by number, and whether they are alive."""
    return lambda count: [worker(name=f"w{number}", old=True) for number in range(count)]


def disconnected():
    return ServerEvent.objects.filter(to_state="DISCONNECTED").count()


def actions():
    return list(ServerEvent.objects.exclude(action="").values_list("action", flat=True))


def silence(clock, fleet, silent, seconds=46):
    """Advance the clock while the first `silent` servers of the fleet send no heartbeats and the others do."""
    clock.advance(seconds)
    for one in fleet[silent:]:
        one.beat()
    check_liveness()


@pytest.mark.parametrize(
    ("count", "silent", "holds"),
    [(8, 6, True), (9, 3, True), (10, 3, False), (6, 2, False), (3, 3, True), (2, 2, False)],
)
def test_it_holds_from_its_minimum_and_its_share_on(clock, fleet, count, silent, holds):
    silence(clock, fleet(count), silent)
    assert disconnected() == (0 if holds else silent)
    assert Brake.objects.exists() is holds
    assert actions() == (["brake_engaged"] if holds else [])


def test_it_can_be_switched_off(clock, fleet, settings):
    settings.LIVENESS = {"BRAKE_MINIMUM": None}
    silence(clock, fleet(8), 8)
    assert disconnected() == 8


def test_it_counts_the_share_and_the_minimum_of_the_settings(clock, fleet, settings):
    settings.LIVENESS = {"BRAKE_MINIMUM": 2, "BRAKE_SHARE": 0.9}
    workers = fleet(4)
    silence(clock, workers, 3)
    assert disconnected() == 3


def test_those_that_went_within_the_last_timeout_are_counted_with_those_to_go(clock, worker):
    timeouts = [45] * 2 + [23] * 3 + [45] * 4
    workers = [
        worker(name=f"w{n}", old=True, config={"timeout_seconds": timeout}) for n, timeout in enumerate(timeouts)
    ]
    clock.advance(23)
    for one in workers[2:]:
        one.beat()
    silence(clock, workers, 2, 23)
    assert disconnected() == 2
    silence(clock, workers, 5, 24)  # three more: five of nine in one timeout
    assert disconnected() == 2
    assert Brake.objects.get().silent == 5


@pytest.mark.parametrize("count", [3, 4, 8, 12])
def test_those_that_fall_silent_together_are_counted_before_the_first_of_them_goes(clock, fleet, count):
    """Spread the last heartbeats over an interval, so that the servers become overdue one after the other."""
    workers = fleet(count)
    for one in workers:
        clock.advance(3 / count)
        one.beat()
    for _ in range(60):
        clock.advance(1)
        check_liveness()
    assert disconnected() == 0
    assert Brake.objects.get().silent == count


@pytest.mark.parametrize(("late", "goes"), [(2, True), (3, False)])
def test_nobody_goes_while_a_third_is_late(clock, fleet, late, goes):
    workers, clock = fleet(9), clock
    clock.advance(46 - 9)  # the limit of freshness: the first is overdue when the others become late
    for one in workers[1:]:
        one.beat()
    silence(clock, workers, late, 9)
    assert disconnected() == goes
    assert Brake.objects.exists() is not goes


def test_just_before_they_are_late_they_are_not_counted(clock, fleet):
    workers, clock = fleet(9), clock
    clock.advance(46 - 8.9)
    for one in workers[1:]:
        one.beat()
    silence(clock, workers, 3, 8.9)
    assert disconnected() == 1


def live(clock, workers, seconds):
    """Let the workers send heartbeats for so many seconds."""
    for _ in range(5):
        clock.advance(seconds / 5)
        for one in workers:
            one.beat()


@pytest.mark.parametrize("heard_for", [0, 45])
def test_servers_younger_than_their_timeout_engage_no_brake(clock, fleet, worker, heard_for):
    """A worker token may register many servers. They must not hold up the servers of others."""
    dead, *living = fleet(6)
    fakes = [worker(name=f"fake-{number}") for number in range(3)]
    live(clock, [dead, *fakes, *living], heard_for)
    silence(clock, [dead, *fakes, *living], 4)
    assert not Brake.objects.exists()
    assert disconnected() == 4


def test_older_servers_engage_it_and_new_ones_do_not_dilute_their_share(clock, fleet, worker):
    silent, living = [worker(name=f"heard-{number}") for number in range(3)], fleet(2)
    live(clock, [*silent, *living], 45.05)
    clock.advance(46)
    for one in [*living, *(worker(name=f"new-{number}") for number in range(10))]:
        one.beat()
    check_liveness()
    brake = Brake.objects.get()
    assert (brake.silent, brake.alive, disconnected()) == (3, 5, 0)


def test_while_nobody_would_go_it_does_not_engage(clock, fleet):
    silence(clock, fleet(9), 9, 44)
    assert not Brake.objects.exists()
    assert actions() == []


def test_it_holds_one_type_and_not_another(clock, fleet, api):
    fleet(4)
    executor = Worker.register(api("worker"), type="EXECUTOR", name="executor").running()
    silence(clock, [], 0)
    assert Server.objects.get(pk=executor.id).state == "DISCONNECTED"
    assert disconnected() == 1


def test_a_beat_frees_the_server_that_beats_alone(clock, fleet):
    workers = fleet(6)
    silence(clock, workers, 6)
    workers[0].beat()
    check_liveness()
    assert Server.objects.filter(state="RUNNING").count() == 6
    assert Brake.objects.get().silent == 5


def test_it_ends_when_the_share_falls_below(clock, fleet):
    workers = fleet(6)
    silence(clock, workers, 6)
    for one in workers[1:]:
        one.beat()
    check_liveness()
    assert actions() == ["brake_engaged", "brake_ended"]
    assert not Brake.objects.exists()
    assert disconnected() == 1


def test_released_by_an_operator_it_holds_nobody_any_more(clock, fleet):
    silence(clock, fleet(6), 6)
    Brake.objects.update(released_by="operator:ann", release_reason="the rack burnt down")
    check_liveness()
    assert disconnected() == 6


def test_after_its_longest_hold_ten_per_cent_at_least_one_go_per_check(clock, fleet):
    silence(clock, fleet(12), 12)
    clock.advance(299)
    check_liveness()
    assert disconnected() == 0
    gone = []
    for _ in range(4):
        clock.advance(INTERVAL)
        check_liveness()
        gone.append(disconnected())
    assert gone == [2, 3, 4, 5]
    for _ in range(10):
        clock.advance(INTERVAL)
        check_liveness()
    assert disconnected() == 12


def test_a_real_loss_of_six_of_eight_takes_the_longest_hold_and_then_a_check_each(clock, fleet):
    workers = fleet(8)
    silence(clock, workers, 6)
    checks = 0
    while disconnected() < 6:
        clock.advance(INTERVAL)
        for one in workers[6:]:
            one.beat()
        check_liveness()
        checks += 1
        assert checks < 60
    # 300 s of hold, then one per check until so few are left that the brake ends of itself.
    assert 30 <= checks <= 30 + 6
    assert Server.objects.filter(state="RUNNING").count() == 2


def test_a_held_server_keeps_its_jobs(clock, fleet, submit):
    submit()
    workers = fleet(4)
    attempt = workers[0].hold()
    silence(clock, workers, 4)
    assert workers[0].complete(attempt, "late, but its own")["accepted"]


def test_the_page_shows_that_the_brake_holds(admin_client, clock, fleet):
    silence(clock, fleet(4), 4)
    page = admin_client.get("/admin/instance/").content.decode()
    assert "The brake holds WORKER" in page
    assert "held by the brake" in page


def test_a_release_covers_the_servers_that_were_silent_at_that_moment(clock, fleet):
    workers = fleet(9)
    silence(clock, workers, 3)
    Brake.objects.update(released_by="operator:ann", release_reason="the rack burnt down")
    silence(clock, workers, 6, 20)
    brake = Brake.objects.get()
    assert (brake.released_by, brake.silent, disconnected()) == (None, 6, 0), "three more are another incident"


def test_two_checks_of_one_tick_let_go_as_many_as_one_does(clock, fleet):
    silence(clock, fleet(12), 12)
    clock.advance(299)
    check_liveness()
    clock.advance(INTERVAL)
    for _ in range(4):
        check_liveness()
    assert disconnected() == 2, "ten per cent of twelve, rounded up, in all four checks together"
