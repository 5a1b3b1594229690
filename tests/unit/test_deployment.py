"""What stands in deploy/ agrees with the settings, with the code, and with itself."""

import argparse
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, requires
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from celery.bin.celery import celery as celery_command
from django.core.management import get_commands
from django.urls import resolve
from granian.cli import cli as granian_command

from controlplane.agent.memory import parse_size
from controlplane.agent.options import VERSION, build_parser
from jobs.states import JobState
from liveness.conf import LivenessSettings
from tests.support.processes import ROOT

DEPLOY = ROOT / "deploy"
GRACE = LivenessSettings.termination_grace_period
LAST_WORDS = 20
"""Seconds that a worker has after its grace period to kill what is left and to be heard."""
OWN_PROGRAMS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])
UID = 10001


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]


@pytest.fixture(scope="module")
def kubernetes():
    """Each object of the base and of the autoscaler, by its kind and name."""
    folders = [DEPLOY / "kubernetes" / name for name in ("base", "autoscaling")]
    listed = {folder / name for folder in folders for name in documents(folder / "kustomization.yaml")[0]["resources"]}
    documents_found = [document for path in sorted(listed) if path.is_file() for document in documents(path)]
    return {
        (document["kind"], document["metadata"]["name"].removeprefix("controlplane-")): document
        for document in documents_found
    }


@pytest.fixture(scope="module")
def pods(kubernetes):
    return {
        name: document["spec"]["template"]["spec"]
        for (kind, name), document in kubernetes.items()
        if kind in ("Deployment", "Job")
    }


@pytest.fixture(scope="module")
def units():
    return {path.stem.removeprefix("controlplane-"): read_unit(path) for path in (DEPLOY / "systemd").glob("*.service")}


def read_unit(path):
    """The settings of a unit; none is there twice."""
    lines = [line for line in path.read_text().splitlines() if "=" in line and not line.startswith("#")]
    pairs = [line.split("=", 1) for line in lines]
    assert len({name for name, _ in pairs}) == len(pairs), path
    return dict(pairs)


@pytest.fixture(scope="module")
def commands(compose, pods, units):
    """Every command that anything in deploy/ runs, by where it stands."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    by_place = {"image": yaml.safe_load(re.search(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)[1])}
    by_place |= {f"compose {name}": s["command"] for name, s in compose.items() if "build" in s and "command" in s}
    by_place |= {f"kubernetes {name}": pod["containers"][0]["args"] for name, pod in pods.items()}
    for name, unit in units.items():
        program, *arguments = shlex.split(unit["ExecStart"].replace("%%", "%"))
        assert Path(program).parent == Path("/opt/controlplane/bin")
        by_place[f"systemd {name}"] = [Path(program).name, *arguments]
    return by_place


def every_kustomization():
    return sorted((DEPLOY / "kubernetes").glob("*/kustomization.yaml"))


@pytest.mark.parametrize("path", every_kustomization(), ids=lambda path: path.parent.name)
def test_a_kustomization_names_files_that_are_there_and_leaves_none_out(path):
    (kustomization,) = documents(path)
    named = {(path.parent / name).resolve() for name in kustomization["resources"]}
    assert all(resource.exists() for resource in named)
    beside = {*path.parent.glob("*.yaml")} - {path, path.parent / "prometheus-adapter.yaml"}
    assert beside <= named


def test_every_command_is_understood_by_the_program_that_it_names(commands):
    for where, (program, *arguments) in commands.items():
        check_command(where, program, arguments)
    # Nothing is left out: whatever there is of one kind is there of each.
    for place in ("compose", "kubernetes", "systemd"):
        assert {f"{place} {part}" for part in ("migrate", "executor", "beat")} <= set(commands)


def check_command(where, program, arguments):
    if program == "sh":
        line = re.search(r"controlplane (create_token .*?) >", arguments[-1])[1]
        check_command(where, "controlplane", line.split())
    elif program == "granian":
        parsed = granian_command.make_context("granian", list(arguments)).params
        assert (str(parsed["interface"]), parsed["port"], parsed["workers"]) == ("rsgi", 8000, 1), where
        assert parsed["app"] == "controlplane.web:application", where
    elif program == "celery":
        at = next(index for index, word in enumerate(arguments) if word in celery_command.commands)
        name, own = arguments[at], arguments[at + 1 :]
        group = celery_command.make_context("celery", arguments[:at], resilient_parsing=True)
        command = celery_command.commands[name].make_context(name, list(own), parent=group, resilient_parsing=True)
        assert group.params["app"] == "controlplane.celery" and command.params["loglevel"], where
        assert name in ("worker", "beat") and not command.args, where
    elif program == "controlplane":
        assert arguments[0] in get_commands(), where
    elif program == "controlplane-agent":
        parsed = build_parser().parse_args(arguments)
        assert parsed.name and not parsed.token, f"{where}: a token on a command line is everybody's to read"
    else:
        pytest.fail(f"{where} runs {program}")


def test_the_programs_are_those_that_the_packages_bring(commands):
    brought = {script.name for script in entry_points(group="console_scripts")} | OWN_PROGRAMS
    assert {command[0] for command in commands.values()} - {"sh"} <= brought


def test_all_web_processes_and_executors_are_started_alike(commands):
    def options(name):
        return sorted(" ".join(commands[name]).replace("--app=", "-A ").replace("=", " ").split())

    web = [options(name) for name in ("image", "kubernetes web")]
    assert web[0] == web[1]
    assert [word for word in options("systemd web") if word != "127.0.0.1"] == [w for w in web[0] if w != "0.0.0.0"]  # noqa: S104
    assert options("compose executor") == options("kubernetes executor") == options("systemd executor")
    assert options("compose beat") == options("kubernetes beat") == options("systemd beat")


def test_the_probes_ask_for_what_is_there_under_a_name_that_is_allowed(kubernetes, pods, compose):
    (web,) = pods["web"]["containers"]
    (port,) = web["ports"]
    allowed = kubernetes["ConfigMap", "controlplane"]["data"]["ALLOWED_HOSTS"].split(",")
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        asked = web[probe]["httpGet"]
        assert (asked["path"], asked["port"]) == (path, port["name"])
        assert resolve(path).func.__name__ == path[1:]
        assert asked["httpHeaders"] == [{"name": "Host", "value": "localhost"}] and "localhost" in allowed
    assert port["containerPort"] == 8000
    (service,) = kubernetes["Service", "web"]["spec"]["ports"]
    assert service["targetPort"] == port["name"]
    asked = re.search(r"'(http://(\S+):8000(/\w+))'", compose["web"]["healthcheck"]["test"][-1])
    assert resolve(asked[3]).func.__name__ == "readyz"
    assert asked[2] in compose["web"]["environment"]["ALLOWED_HOSTS"].split(",")
    assert compose["web"]["ports"][0].endswith(":8000")


def test_whoever_calls_by_a_name_may(kubernetes, compose):
    allowed = kubernetes["ConfigMap", "controlplane"]["data"]["ALLOWED_HOSTS"].split(",")
    (rule,) = kubernetes["Ingress", "controlplane"]["spec"]["rules"]
    assert rule["host"] == allowed[0]
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "controlplane-web", "port": {"name": "http"}}
    assert kubernetes["Ingress", "controlplane"]["spec"]["tls"][0]["hosts"] == [rule["host"]]
    # BEHIND_TLS sends everybody else to https, workers too.
    assert kubernetes["ConfigMap", "controlplane"]["data"]["BEHIND_TLS"] == "1"
    assert kubernetes["ConfigMap", "worker"]["data"]["CONTROLPLANE_URL"] == f"https://{rule['host']}"
    assert ":-http://web:8000}" in compose["worker-1"]["environment"]["CONTROLPLANE_URL"]
    assert "web" in compose["web"]["environment"]["ALLOWED_HOSTS"].split(",")


def test_a_worker_has_its_grace_period_before_it_is_killed(pods, compose, units):
    for seconds in (
        pods["worker"]["terminationGracePeriodSeconds"],
        int(compose["worker-1"]["stop_grace_period"].removesuffix("s")),
        int(compose["worker-2"]["stop_grace_period"].removesuffix("s")),
        int(units["agent@"]["TimeoutStopSec"]),
    ):
        assert GRACE + LAST_WORDS <= seconds <= GRACE + 60


def test_a_web_process_has_left_the_service_and_ended_before_it_is_killed(pods, compose, units, commands):
    pause = int(pods["web"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    patience = granian_command.make_context("granian", list(commands["image"][1:])).params["workers_kill_timeout"]
    assert pods["web"]["terminationGracePeriodSeconds"] >= pause + patience + 5
    assert int(compose["web"]["stop_grace_period"].removesuffix("s")) >= patience + 5
    assert int(units["web"]["TimeoutStopSec"]) >= patience + 5


def test_an_outage_of_the_control_plane_restarts_no_worker_whose_jobs_may_go_on(pods):
    """`--check` fails when nobody has answered for the timeout; a fence leaves the code at most that and the grace."""
    (worker,) = pods["worker"]["containers"]
    probe = worker["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= GRACE
    for name in ("readinessProbe", "livenessProbe"):
        program, *arguments = worker[name]["exec"]["command"]
        assert program in OWN_PROGRAMS and build_parser().parse_args(arguments).check


def test_no_probe_hopes_for_variables_that_only_a_shell_fills_in(pods):
    for pod in pods.values():
        for container in pod["containers"]:
            for probe in (container.get(f"{name}Probe", {}) for name in ("startup", "liveness", "readiness")):
                command = probe.get("exec", {}).get("command", ["sh"])
                assert command[0] == "sh" or not any("$" in word for word in command)


def test_one_task_is_killed_for_its_memory_before_the_container_is(pods):
    (worker,) = pods["worker"]["containers"]
    options = build_parser().parse_args(worker["args"][1:])
    limit = parse_size(worker["resources"]["limits"]["memory"].removesuffix("i"))
    assert options.concurrency * parse_size(options.memory_limit) + 2**27 <= limit


def test_nothing_runs_as_root_or_writes_to_its_image(pods, compose):
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^USER (.*)$", dockerfile, re.MULTILINE) == [f"{UID}:{UID}"]
    assert f"--uid {UID}" in dockerfile and f"--gid {UID}" in dockerfile
    for name, pod in pods.items():
        as_whom = pod["securityContext"]
        assert as_whom["runAsNonRoot"] and as_whom["runAsUser"] == as_whom["runAsGroup"] == as_whom["fsGroup"] == UID
        assert as_whom["seccompProfile"] == {"type": "RuntimeDefault"} and not pod["automountServiceAccountToken"]
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }, name  # fmt: skip
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert {volume["name"] for volume in pod["volumes"]} == set(mounted)
        assert mounted["tmp"] == "/tmp"
    for service in (service for service in compose.values() if "build" in service):
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and "/tmp" in service["tmpfs"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_what_an_agent_keeps_lies_where_the_image_lets_it_write(pods, compose):
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    state = re.search(r"CONTROLPLANE_STATE_DIR=(\S+)", dockerfile)[1]
    made = re.search(r"install -d -o 10001 -g 10001 -m 0700 (.*)$", dockerfile, re.MULTILINE)[1].split()
    assert state in made
    (worker,) = pods["worker"]["containers"]
    assert state in {mount["mountPath"] for mount in worker["volumeMounts"]}
    for name in ("worker-1", "worker-2"):
        volumes = [volume.split(":") for volume in compose[name]["volumes"]]
        assert [name, state] in volumes
        (token,) = [volume[1] for volume in volumes if volume[0] == "worker-token"]
        assert token in made and f"{token}/token" in compose[name]["command"]
        assert token in compose["worker-token"]["command"][-1]


def test_every_variable_is_one_that_the_settings_read(kubernetes, compose, units):
    text = "".join(
        (ROOT / name).read_text()
        for name in ("controlplane/settings.py", "controlplane/agent/options.py", "controlplane/agent/environment.py")
    )
    known = set(re.findall(r'"([A-Z][A-Z_]+)"', text)) | {"POD_NAME"}
    maps = [document["data"] for (kind, _), document in kubernetes.items() if kind == "ConfigMap"]
    maps += [service["environment"] for service in compose.values() if "build" in service]
    for path in DEPLOY.glob("systemd/*.example"):
        maps.append(dict(line.split("=", 1) for line in path.read_text().splitlines() if not line.startswith("#")))
    assert len(maps) >= 10
    for variables in maps:
        assert set(variables) <= known
    for path in (unit["EnvironmentFile"] for unit in units.values()):
        example = DEPLOY / "systemd" / f"{Path(path).name}.example"
        assert example.read_text().startswith(f"# {path}")


def test_systemd_ends_the_process_and_leaves_its_jobs_to_it(units):
    for name in ("web", "executor", "beat", "agent@"):
        assert (units[name]["KillMode"], units[name]["Restart"]) == ("mixed", "always")
    agent = units["agent@"]
    assert agent["OOMPolicy"] == "continue"
    # "could not begin": argparse has the same status.
    assert agent["RestartPreventExitStatus"] == "2"
    with pytest.raises(SystemExit) as ended:
        argparse.ArgumentParser().parse_args(["--unknown"])
    assert ended.value.code == 2
    assert all(unit["User"] != "root" and unit["NoNewPrivileges"] == "yes" for unit in units.values())


def test_there_is_always_one_left_while_nodes_are_emptied(kubernetes):
    for part in ("web", "executor"):
        budget = kubernetes["PodDisruptionBudget", part]["spec"]
        deployment = kubernetes["Deployment", part]["spec"]
        assert budget["minAvailable"] < deployment["replicas"]
    for kind, part in kubernetes:
        if kind == "PodDisruptionBudget":
            wanted = kubernetes["Deployment", part]["spec"]["selector"]
            assert kubernetes[kind, part]["spec"]["selector"] == wanted
            assert kubernetes["Deployment", part]["spec"]["template"]["metadata"]["labels"] == wanted["matchLabels"]


def test_workers_are_as_many_as_there_is_work(kubernetes, pods):
    scaler = kubernetes["HorizontalPodAutoscaler", "worker"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == "controlplane-worker"
    (external,) = [metric["external"] for metric in scaler["metrics"]]
    (rule,) = documents(DEPLOY / "kubernetes/autoscaling/prometheus-adapter.yaml")[0]["rules"]["external"]
    assert rule["name"]["as"] == external["metric"]["name"]
    slots = build_parser().parse_args(pods["worker"]["containers"][0]["args"][1:]).concurrency
    assert float(external["target"]["averageValue"]) == slots
    states = re.search(r'state=~"([\w|]+)"', rule["metricsQuery"])[1].split("|")
    assert set(states) == {JobState.PENDING, JobState.CLAIMED, JobState.RUNNING}


def test_the_image_is_of_this_version_everywhere(compose, kubernetes):
    images = {service["image"] for service in compose.values() if "build" in service}
    (kustomization,) = documents(DEPLOY / "kubernetes/base/kustomization.yaml")
    images |= {f"{image['name']}:{image['newTag']}" for image in kustomization["images"]}
    assert images == {f"controlplane:{VERSION}"}


def test_the_image_is_built_of_what_is_locked_and_of_what_the_wheel_needs():
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert all("--require-hashes" in line or "--no-index" in line for line in re.findall(r"pip install.*", dockerfile))
    kept = set(re.search(r"\^\(([\w|-]+)\)==", dockerfile)[1].split("|"))
    needs = {re.split(r"[><=; ]", need)[0] for need in requires("hatchling") or () if "python_version <" not in need}
    assert kept == needs | {"hatchling"}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())
    let_in = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    assert let_in == {
        *build["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
        *build["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"],
        *("pyproject.toml", build["project"]["readme"], "LICENSE", "requirements.lock", "requirements-dev.lock"),
    }


@pytest.mark.parametrize("command", [
    ["hadolint", DEPLOY / "Dockerfile"],
    ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yml"],
], ids=["image", "compose"])  # fmt: skip
def test_those_who_know_the_format_find_nothing_wrong(command):
    program, *arguments = command
    found = subprocess.run(
        [Path(sys.executable).parent / program, *arguments], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_each_object_is_as_kubernetes_knows_it_with_no_field_that_it_does_not(kubernetes):
    for document in kubernetes.values():
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
