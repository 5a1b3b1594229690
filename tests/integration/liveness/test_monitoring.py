"""The alerts and the dashboard in deploy/monitoring ask for what `/metrics` answers."""

import json
import re

import pytest
import yaml
from django.test import Client

from controlplane.observability.metrics import COUNTERS, HISTOGRAMS
from jobs.services.liveness_check import check_liveness
from jobs.states import AttemptState, JobState
from liveness.conf import LivenessSettings
from liveness.states import ServerState, ServerType
from tests.support.processes import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
SELECTOR = re.compile(r"\b(controlplane_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"')
OF_PROMETHEUS = {"job", "instance"}
VALUES = {
    ("controlplane_jobs", "state"): set(JobState),
    ("controlplane_queue_jobs", "state"): {"waiting", "parked", "running"},
    ("controlplane_servers", "state"): set(ServerState),
    ("controlplane_servers", "type"): set(ServerType),
    ("controlplane_brake_engaged", "type"): set(ServerType),
    ("controlplane_transitions_total", "to"): set(ServerState),
    ("controlplane_transitions_total", "actor"): {"server", "liveness", "operator"},
    ("controlplane_attempts_total", "end"): set(AttemptState),
    ("controlplane_heartbeats_total", "result"): {"accepted"},
}


@pytest.fixture
def labels_of(api, worker, submit, settings):
    """Return the labels of each series of `/metrics`."""
    settings.JOBS = {"STORED_BYTES_LIMIT": "1G"}
    submit()
    worker()
    check_liveness()
    answer = Client(headers={"Authorization": f"Bearer {api('viewer').token}"}).get("/metrics").content.decode()
    label_names = {}
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", answer, re.MULTILINE):
        ends = {"histogram": ("_bucket", "_count", "_sum"), "gaugehistogram": ("_bucket", "_gcount", "_gsum")}
        label_names |= {name + end: {"le"} if end == "_bucket" else set() for end in ends.get(kind, ("",))}
    for name, labels in re.findall(r"^(controlplane_\w+)(?:\{(.*)\})? ", answer, re.MULTILINE):
        label_names[name] |= {label for label, _, _ in LABEL.findall(labels)}
    for name, (labels, _) in COUNTERS.items():
        label_names[f"controlplane_{name}_total"] |= set(labels)
    for name, (labels, _) in HISTOGRAMS.items():
        label_names[f"controlplane_{name}_bucket"] |= set(labels)
    return label_names


def alerts():
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return group["rules"]


def panels():
    return json.loads((MONITORING / "dashboard.json").read_text())["panels"]


def expressions():
    """Yield each expression with the name of its alert or panel."""
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"])
    adapter = yaml.safe_load((ROOT / "deploy/kubernetes/autoscaling/prometheus-adapter.yaml").read_text())
    yield from (("prometheus-adapter", rule["metricsQuery"]) for rule in adapter["rules"]["external"])


def test_every_series_that_is_asked_for_is_there_with_its_labels_and_their_values(labels_of):
    for where, expression in expressions():
        selectors = SELECTOR.findall(expression)
        assert selectors, where
        known = OF_PROMETHEUS.union(*(labels_of.get(name, ()) for name, _ in selectors))
        for name, selector in selectors:
            assert name in labels_of, f"{where}: {name}"
            for label, how, value in LABEL.findall(selector):
                assert label in labels_of[name] | OF_PROMETHEUS, f"{where}: {name}{{{label}}}"
                if (name, label) in VALUES:
                    assert set(value.split("|") if how == "=~" else [value]) <= VALUES[name, label], where
        for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
            assert {label.strip() for label in grouped.split(",")} <= known, where


def test_every_metric_is_shown_or_watched(labels_of):
    asked = {name for _, expression in expressions() for name, _ in SELECTOR.findall(expression)}
    families = {re.sub("_(bucket|count|sum|gcount|gsum)$", "", name) for name in labels_of}
    assert families == {re.sub("_bucket$", "", name) for name in asked}


def test_no_sum_is_taken_over_web_processes_with_equal_values():
    for where, expression in expressions():
        for inside in re.findall(r"\bsum(?: by \([^)]*\))? ?\((.{0,30})", expression):
            assert inside.startswith("max"), f"{where}: {expression}"


def test_an_alert_has_a_severity_and_a_link_to_the_runbook():
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names) >= 8
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook.md#{rule['alert'].lower()}"


def test_thresholds_fit_to_the_settings():
    thresholds = ((rule["alert"], re.search(r"> ([\d.]+)$", rule["expr"])) for rule in alerts())
    limits = {name: float(limit[1]) for name, limit in thresholds if limit}
    default = LivenessSettings()
    assert limits["ControlPlaneCheckLate"] >= 3 * default.interval
    assert limits["ControlPlaneObservedTimeStands"] >= 3 * max(default.interval, 2 * default.heartbeat_interval)
    assert limits["ControlPlaneCheckSlow"] < default.interval
    assert limits["ControlPlaneRecoverySlow"] > default.timeout + default.termination_grace_period


def test_every_alert_has_a_test_for_promtool():
    text = (MONITORING / "alerts_test.yml").read_text()
    assert yaml.safe_load(text)["rule_files"] == ["alerts.yml"]
    assert [rule["alert"] for rule in alerts() if not re.search(rf"{rule['alert']}|{rule['alert'][12:]}\b", text)] == []


def test_the_panels_lie_beside_each_other_and_have_numbers_of_their_own():
    places = [panel["gridPos"] for panel in panels()]
    covered = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(covered)) == len(covered) and max(x for x, _ in covered) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())
