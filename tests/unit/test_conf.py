"""Settings: typed, from Django or the environment, and checked all at once."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from jobs import checks as jobs_checks
from jobs.conf import conf as jobs
from liveness import checks as liveness_checks
from liveness.conf import conf as liveness
from liveness.conf import timeout_problems, witness_window

DEFAULTS = {
    "enabled": True, "interval": 10, "timeout": 45, "initial_delay": 45, "heartbeat_interval": 3,
    "staleness_multiplier": 3, "termination_grace_period": 300,
    "worker_task_restart_strategy": "AFTER_TERMINATION_GRACE_PERIOD",
}  # fmt: skip
JOB_DEFAULTS = {
    "sweep_interval": 60, "claimer_heartbeat_interval": 30, "runner_heartbeat_interval": 30,
    "on_worker_lost": "RESUBMIT", "max_resubmissions": 3, "default_timeout": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def given(settings, monkeypatch):
    """Set LIVENESS or JOBS and the environment, and read the settings again."""

    def given(name="LIVENESS", environ=(), **values):
        for key, value in dict(environ).items():
            monkeypatch.setenv(key, value)
        setattr(settings, name, values)

    given()
    given("JOBS")
    yield given
    monkeypatch.undo()


def list_problems(checks):
    return [(message.id, message.msg) for message in checks.check_settings()]


def ids(checks):
    return sorted(id_.split(".")[1] for id_, _ in list_problems(checks))


@pytest.mark.parametrize(("conf", "defaults"), [(liveness, DEFAULTS), (jobs, JOB_DEFAULTS)])
def test_the_defaults_are_those_of_the_specification(conf, defaults):
    assert {key: getattr(conf(), key) for key in defaults} == defaults


def test_the_defaults_are_sound():
    assert list_problems(liveness_checks) == list_problems(jobs_checks) == []


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("TIMEOUT", 60, 60.0), ("TIMEOUT", "60", 60.0), ("TIMEOUT", "5m", 300.0), ("INITIAL_DELAY", "0s", 0.0),
        ("ENABLED", False, False), ("ENABLED", "false", False), ("ENABLED", "0", False), ("ENABLED", "True", True),
        ("STALENESS_MULTIPLIER", "2.5", 2.5), ("WORKER_TASK_RESTART_STRATEGY", "NEVER", "NEVER"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["settings", "environment"])
def test_a_value_is_read_as_its_type_from_settings_and_environment(given, key, raw, value, by):
    given(**{key: raw}) if by == "settings" else given(environ={f"LIVENESS_{key}": str(raw)})
    read = getattr(liveness(), key.lower())
    assert read == value and isinstance(read, type(value))


def test_the_environment_wins(given):
    given(TIMEOUT=60, environ={"LIVENESS_TIMEOUT": "2m"})
    assert liveness().timeout == 120


@pytest.mark.parametrize("raw", ["none", "None", None])
def test_a_limit_may_be_none(given, raw):
    given("JOBS", DEFAULT_TIMEOUT=raw)
    assert jobs().default_timeout is None


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("TIMEOUT", "soon"), ("TIMEOUT", None), ("TIMEOUT", "none"), ("TIMEOUT", True), ("TIMEOUT", [1]),
        ("INTERVAL", float("nan")), ("INTERVAL", float("inf")), ("ENABLED", "maybe"), ("ENABLED", None),
        ("STALENESS_MULTIPLIER", "x"), ("STALENESS_MULTIPLIER", "nan"), ("STALENESS_MULTIPLIER", None),
        ("WORKER_TASK_RESTART_STRATEGY", "SOMETIMES"), ("WORKER_TASK_RESTART_STRATEGY", "never"),
        ("WORKER_TASK_RESTART_STRATEGY", None), ("NONSENSE", 1), ("timeout", 60),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_named_by_the_check_and_at_use(given, key, raw):
    given(**{key: raw})
    assert ids(liveness_checks) == ["E001"]
    assert key in list_problems(liveness_checks)[0][1]
    with pytest.raises(ImproperlyConfigured, match=key):
        liveness()


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"LIVENESS_TIMOUT": "45s"}, ["LIVENESS_TIMOUT", "TIMEOUT is probably meant"]),
        ({"LIVENESS_timeout": "45s"}, ["LIVENESS_timeout", "TIMEOUT is probably meant"]),
        ({"LIVENESS_XYZ": "1"}, ["LIVENESS_XYZ", "known are ENABLED, INTERVAL"]),
        ({"LIVENESS_": "1"}, ["LIVENESS_", "known are"]),
    ],
    ids=str,
)
def test_an_unknown_name_in_the_environment_is_refused_with_what_is_probably_meant(given, environ, named):
    given(environ=environ)
    ((id_, message),) = list_problems(liveness_checks)
    assert id_ == "liveness.E001" and all(part in message for part in named)
    with pytest.raises(ImproperlyConfigured, match=named[0]):
        liveness()


@pytest.mark.parametrize("key", ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "X_PORT_80_TCP"])
def test_variables_of_kubernetes_for_a_service_named_like_our_settings_are_ignored(given, key):
    given("JOBS", environ={f"JOBS_{key}": "tcp://10.0.0.1:80", "JOBS": "x", "LIVENESSX_TIMOUT": "1"})
    assert list_problems(jobs_checks) == list_problems(liveness_checks) == []


def test_a_misspelt_key_gets_a_hint_to_the_right_one(given):
    given("JOBS", MAX_RESUBMISSION=1)
    assert 'JOBS["MAX_RESUBMISSION"] is not a setting; MAX_RESUBMISSIONS is' in list_problems(jobs_checks)[0][1]


@pytest.mark.parametrize(("seconds", "expected"), [(-1, ["E002"]), (0, ["E002"]), (0.001, []), (None, [])])
def test_a_default_timeout_is_above_0(given, seconds, expected):
    given("JOBS", DEFAULT_TIMEOUT=seconds)
    assert ids(jobs_checks) == expected


@pytest.mark.parametrize("raw", ["x", "1.5", 1.5, None, "", True])
def test_a_number_of_losses_is_a_whole_number(given, raw):
    given("JOBS", MAX_RESUBMISSIONS=raw)
    assert ids(jobs_checks) == ["E001"]


def test_an_unreadable_environment_is_named_as_such(given):
    given(environ={"LIVENESS_TIMEOUT": "soon"})
    assert "LIVENESS_TIMEOUT" in list_problems(liveness_checks)[0][1]


@pytest.mark.parametrize(
    ("values", "id_", "named"),
    [
        ({"INTERVAL": 0}, "E002", ["INTERVAL"]),
        ({"HEARTBEAT_INTERVAL": -1}, "E002", ["HEARTBEAT_INTERVAL", "-1 s"]),
        ({"INITIAL_DELAY": -1}, "E003", ["INITIAL_DELAY", "-1 s"]),
        ({"TERMINATION_GRACE_PERIOD": -1}, "E003", ["TERMINATION_GRACE_PERIOD"]),
        ({"TIMEOUT": 39.9, "HEARTBEAT_INTERVAL": 20, "INTERVAL": 1}, "E004", ["39.9 s", "20 s"]),
        ({"TIMEOUT": 22.9}, "E004", ["22.9 s", "3 s", "10 s", "23 s"]),
        ({"STALENESS_MULTIPLIER": 1.9}, "E005", ["1.9"]),
    ],
    ids=str,
)
def test_values_that_do_not_go_together_are_errors_with_both_named(given, values, id_, named):
    given(**values)
    problems = [message for found_id, message in list_problems(liveness_checks) if found_id == f"liveness.{id_}"]
    assert problems
    assert all(word in problems[0] for word in named)


@pytest.mark.parametrize(
    "values",
    [
        {"TIMEOUT": 23}, {"INITIAL_DELAY": 0}, {"TERMINATION_GRACE_PERIOD": 0}, {"STALENESS_MULTIPLIER": 2},
        {"INTERVAL": 0.001, "HEARTBEAT_INTERVAL": 15}, {"TIMEOUT": 45, "HEARTBEAT_INTERVAL": 15},
    ],
    ids=str,
)  # fmt: skip
def test_values_at_the_limit_are_sound(given, values):
    given(**values)
    assert list_problems(liveness_checks) == []


@pytest.mark.parametrize(("timeout", "expected"), [(39.9, ["E004"]), (40, ["W001"]), (59.9, ["W001"]), (60, [])])
def test_a_timeout_of_two_heartbeats_is_the_minimum_and_below_three_warns(given, timeout, expected):
    given(TIMEOUT=timeout, HEARTBEAT_INTERVAL=20, INTERVAL=5)
    assert ids(liveness_checks) == expected


@pytest.mark.parametrize(
    ("values", "window"),
    [
        ({}, 10),
        ({"INTERVAL": 1}, 6),
        ({"TIMEOUT": 23}, 10),
        ({"TIMEOUT": 40, "HEARTBEAT_INTERVAL": 20, "INTERVAL": 5}, 10),
        ({"TIMEOUT": 40, "HEARTBEAT_INTERVAL": 20, "INTERVAL": 10}, 10),
    ],
    ids=str,
)
def test_an_outage_counts_for_two_heartbeats_or_a_check_within_the_timeout(given, values, window):
    given(**values)
    assert witness_window() == window


@pytest.mark.parametrize(("timeout", "is_sound"), [(2, False), (9.4, False), (9.5, True), (45, True)])
def test_a_servers_own_timeout_has_room_for_the_outages_that_the_settings_count(given, timeout, is_sound):
    given(INTERVAL=0.5)
    own = {"timeout": timeout, "heartbeat_interval": 0.5, "interval": 0.5, "window": witness_window()}
    assert (timeout_problems(**own) == []) is is_sound


@pytest.mark.parametrize("interval", [0.1, 1, 7, 10])
@pytest.mark.parametrize("beat", [0.1, 1, 3, 20])
def test_what_the_settings_judge_by_is_never_refused_to_a_server_that_asks_for_it(given, beat, interval):
    for factor in (1, 1.1, 1.7, 4):
        timeout = factor * max(2 * beat, beat + 2 * interval)
        given(TIMEOUT=timeout, HEARTBEAT_INTERVAL=beat, INTERVAL=interval)
        own = {"timeout": timeout, "heartbeat_interval": beat, "interval": interval}
        assert timeout_problems(**own, window=witness_window()) == []


def test_disabled_is_worth_a_warning(given):
    given(ENABLED=False)
    assert ids(liveness_checks) == ["W002"]


def test_all_problems_are_reported_together(given):
    given(INTERVAL=0, INITIAL_DELAY=-1, TIMEOUT=1, STALENESS_MULTIPLIER=1, ENABLED=False)
    assert set(ids(liveness_checks)) == {"E002", "E003", "E004", "E005", "W002"}
    given(TIMEOUT="soon", INTERVAL="x", NONSENSE=1)
    assert ids(liveness_checks) == ["E001"] * 3
    given("JOBS", MAX_RESUBMISSIONS=-1, SWEEP_INTERVAL=0, CLAIMER_HEARTBEAT_INTERVAL=0, RUNNER_HEARTBEAT_INTERVAL=0)
    assert ids(jobs_checks) == ["E002"] * 3 + ["E003"]


def test_a_value_that_cannot_be_read_hides_no_other_problem(given):
    given(ENABLED="maybe", STALENESS_MULTIPLIER=1)
    assert set(ids(liveness_checks)) == {"E001", "E005"}


def overridden():
    return [message.msg for message in jobs_checks.check_overridden_settings()]


def test_a_setting_that_the_environment_overrides_with_another_value_is_a_warning(given):
    given(TIMEOUT="45s", environ={"LIVENESS_TIMEOUT": "60s"})
    assert overridden() == [
        "LIVENESS[\"TIMEOUT\"] is '45s' and is not used: the environment variable LIVENESS_TIMEOUT=60s wins."
    ]
    assert liveness().timeout == 60


def test_the_same_value_in_both_places_is_no_warning(given):
    given(TIMEOUT=60, environ={"LIVENESS_TIMEOUT": "1m"})
    assert overridden() == []


def test_a_secret_that_the_environment_overrides_is_not_shown(given):
    given(SIGNING_KEY="one-secret-of-the-project", environ={"LIVENESS_SIGNING_KEY": "another-secret"})
    [sentence] = overridden()
    assert "LIVENESS_SIGNING_KEY" in sentence and "secret-of" not in sentence and "another-secret" not in sentence


def test_an_address_of_the_console_that_the_environment_overrides_is_a_warning(given, settings):
    settings.CONSOLE_URL = "https://one.example"
    given(environ={"CONSOLE_URL": "https://two.example/"})
    [sentence] = overridden()
    assert "https://one.example" in sentence and "https://two.example/" in sentence
    given(environ={"CONSOLE_URL": "https://one.example/"})
    assert overridden() == []
