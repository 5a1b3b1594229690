"""The files in deploy/ agree with the settings, with the code, and with each other."""

import argparse
import ipaddress
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

from controlplane.agent.command_line import build_parser
from controlplane.agent.fitness.memory import parse_size
from controlplane.agent.runners.pods import PodRunner
from controlplane.agent.version import VERSION
from controlplane.standalone.parts import SERVING
from jobs.states import JobState
from liveness.conf import LivenessSettings
from tests.support.processes import ROOT

DEPLOY = ROOT / "deploy"
GRACE = LivenessSettings.termination_grace_period
LAST_WORDS = 20
"""Seconds that a worker has after its grace period to kill its processes and report that."""
OWN_PROGRAMS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])
UID = 10001


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]


@pytest.fixture(scope="module")
def kubernetes():
    """Return each object of the base and of the autoscaler by its kind and name."""
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
    """Return the settings of a unit. None occurs twice."""
    lines = [line for line in path.read_text().splitlines() if "=" in line and not line.startswith("#")]
    pairs = [line.split("=", 1) for line in lines]
    assert len({name for name, _ in pairs}) == len(pairs), path
    return dict(pairs)


@pytest.fixture(scope="module")
def commands(compose, pods, units):
    """Return every command that a file in deploy/ runs, by its place."""
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
    # Each deployment runs the same kinds of commands.
    for place in ("compose", "kubernetes", "systemd"):
        assert {f"{place} {part}" for part in ("migrate", "executor", "beat")} <= set(commands)


def check_command(where, program, arguments):
    if program == "sh":
        line = re.search(r"controlplane (create_token .*?) >", arguments[-1])[1]
        check_command(where, "controlplane", line.split())
    elif program == "granian":
        parsed = granian_command.make_context("granian", list(arguments)).params
        serving = granian_command.make_context("granian", [*SERVING, "app"]).params
        own = {"app", "host", "port", "workers_kill_timeout"}
        assert {name: value for name, value in parsed.items() if name not in own} == {
            name: value for name, value in serving.items() if name not in own
        }, f"{where}: every place that starts granian gives it the same options"
        assert parsed["port"] == 8000, where
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


def test_every_caller_may_reach_the_names_it_calls(kubernetes, compose):
    allowed = kubernetes["ConfigMap", "controlplane"]["data"]["ALLOWED_HOSTS"].split(",")
    (rule,) = kubernetes["Ingress", "controlplane"]["spec"]["rules"]
    assert rule["host"] == allowed[0]
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "controlplane-web", "port": {"name": "http"}}
    assert kubernetes["Ingress", "controlplane"]["spec"]["tls"][0]["hosts"] == [rule["host"]]
    # BEHIND_TLS redirects every client to https, including workers.
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
    """`--check` fails after a timeout without responses. The fence needs at most the grace period after that."""
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


def test_a_successor_finds_the_state_folder_of_a_dead_agent(pods, compose, units):
    """Its files outlive the container or process, and each agent is where the kernel ends all of it with the agent."""
    state = re.search(r"CONTROLPLANE_STATE_DIR=(\S+)", (DEPLOY / "Dockerfile").read_text())[1]
    (worker,) = pods["worker"]["containers"]
    (mount,) = [mount for mount in worker["volumeMounts"] if mount["mountPath"] == state]
    assert mount.keys() == {"name", "mountPath"}, "writable, and the whole volume"
    assert {"name": mount["name"], "emptyDir": {}} in pods["worker"]["volumes"]
    assert worker["args"][0] == "controlplane-agent" and "command" not in worker, "the first process of its container"
    assert not pods["worker"].get("shareProcessNamespace")
    named = yaml.safe_load((DEPLOY / "compose.yml").read_text())["volumes"]
    for name in ("worker-1", "worker-2"):
        assert f"{name}:{state}" in compose[name]["volumes"] and name in named
        assert state not in compose[name]["tmpfs"] and compose[name]["restart"] == "unless-stopped"
        assert compose[name]["init"], "an init process that ends with the agent"
    agent = units["agent@"]
    options = build_parser().parse_args(shlex.split(agent["ExecStart"])[1:])
    assert options.state_dir == f"%S/{agent['StateDirectory']}"
    assert "DynamicUser" not in agent and "RuntimeDirectory" not in agent
    by_compose = [build_parser().parse_args(compose[name]["command"][1:]) for name in ("worker-1", "worker-2")]
    assert not any(parsed.no_fast_recovery for parsed in [options, *by_compose])


def test_every_variable_is_one_that_the_settings_read(kubernetes, compose, units):
    text = "".join(
        (ROOT / name).read_text()
        for name in (
            "controlplane/settings.py",
            "controlplane/agent/command_line.py",
            "controlplane/agent/options.py",
            "controlplane/agent/processes/environment.py",
        )
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
    # "could not start"; argparse has the same status.
    assert agent["RestartPreventExitStatus"] == "2"
    with pytest.raises(SystemExit) as ended:
        argparse.ArgumentParser().parse_args(["--unknown"])
    assert ended.value.code == 2
    assert all(unit["User"] != "root" and unit["NoNewPrivileges"] == "yes" for unit in units.values())


def test_jobs_share_no_network_with_the_database_and_the_broker(compose):
    networks = yaml.safe_load((DEPLOY / "compose.yml").read_text())["networks"]
    assert all(set(service["networks"]) <= set(networks) for service in compose.values())
    workers = {name for name, service in compose.items() if "controlplane-agent" in service.get("command", ())}
    assert workers == {"worker-1", "worker-2"}
    of_workers = {network for name in workers for network in compose[name]["networks"]}
    beside = {name for name, service in compose.items() if of_workers & set(service["networks"])}
    assert beside == workers | {"web"}
    for name in ("postgres", "redis"):
        assert compose[name]["networks"] == ["data"] and "ports" not in compose[name]
    assert networks["data"]["internal"]


def test_the_broker_and_the_database_of_compose_have_passwords(compose):
    redis, web = compose["redis"], compose["web"]["environment"]
    password = redis["command"][redis["command"].index("--requirepass") + 1]
    assert password == redis["environment"]["REDISCLI_AUTH"] == "${REDIS_PASSWORD:?write it into .env}"
    assert web["CELERY_BROKER_URL"] == f"redis://:{password}@redis:6379/0"
    assert compose["postgres"]["environment"]["POSTGRES_PASSWORD"] in web["DATABASE_URL"]
    assert "PONG" in redis["healthcheck"]["test"][-1], "without a password redis-cli ends with 0 all the same"


class Policies:
    """Network policies of the base, combined as Kubernetes does."""

    def __init__(self, kubernetes):
        self.specs = [document["spec"] for (kind, _), document in kubernetes.items() if kind == "NetworkPolicy"]

    def of(self, labels, direction):
        return [
            spec for spec in self.specs if direction in spec["policyTypes"] and selects(spec["podSelector"], labels)
        ]

    def takes_calls(self, labels):
        """Return the ports on which a pod accepts calls from all clients. None means all ports."""
        if not (policies := self.of(labels, "Ingress")):
            return None
        rules = [rule for spec in policies for rule in spec.get("ingress", ())]
        assert all("from" not in rule for rule in rules)
        return [port["port"] for rule in rules for port in rule["ports"]]

    def may_call(self, labels, address):
        """Return True if a pod may call an address outside the cluster's pods."""
        if not (policies := self.of(labels, "Egress")):
            return True
        blocks = [to["ipBlock"] for spec in policies for rule in spec["egress"] for to in rule["to"] if "ipBlock" in to]
        return any(
            is_within(address, b["cidr"]) and not any(is_within(address, e) for e in b["except"]) for b in blocks
        )

    def may_call_pod(self, labels, namespace, its):
        """Return the ports of another pod that a pod may call. None means all ports."""
        if not (policies := self.of(labels, "Egress")):
            return None
        return [
            port["port"] if port else "any"
            for spec in policies for rule in spec["egress"] for to in rule["to"] for port in rule.get("ports", [None])
            if "podSelector" in to and selects(to["podSelector"], its)
            and selects(to["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
        ]  # fmt: skip


def selects(selector, labels):
    holds = {"Exists": lambda e: e["key"] in labels, "NotIn": lambda e: labels.get(e["key"]) not in e["values"]}
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        holds[expression["operator"]](expression) for expression in selector.get("matchExpressions", ())
    )


def is_within(address, cidr):
    address, network = ipaddress.ip_address(address), ipaddress.ip_network(cidr)
    return address.version == network.version and address in network


@pytest.mark.parametrize(
    "address", ["10.3.0.7", "172.20.1.1", "192.168.0.9", "169.254.169.254", "fd00::7", "100.64.1.1"]
)
def test_no_job_reaches_a_private_network_in_which_databases_and_brokers_are(kubernetes, address):
    policies = Policies(kubernetes)
    worker = kubernetes["Deployment", "worker"]["spec"]["template"]["metadata"]["labels"]
    runner = PodRunner("pod", ["kubernetes"], "kubectl", "a")
    pod_of_job = runner.labels({"id": "attempt", "number": 1, "job": {"id": "job"}})
    for labels in (worker, pod_of_job, {}):
        assert not policies.may_call(labels, address), labels
        assert policies.may_call(labels, "192.0.2.1") and policies.may_call(labels, "2001:db8::1")
        assert policies.takes_calls(labels) == []
        assert policies.may_call_pod(labels, "kube-system", {"k8s-app": "kube-dns"}) == [53, 53]
        assert policies.may_call_pod(labels, "ingress-nginx", {"app.kubernetes.io/name": "ingress-nginx"}) == ["any"]
        assert policies.may_call_pod(labels, "data", {"app": "redis"}) == []
    for part in ("web", "executor", "beat"):
        labels = kubernetes["Deployment", part]["spec"]["template"]["metadata"]["labels"]
        assert policies.may_call(labels, address), part
        assert policies.takes_calls(labels) == (["http"] if part == "web" else [])
    assert policies.may_call(kubernetes["Job", "migrate"]["spec"]["template"]["metadata"]["labels"], address)


def test_the_start_of_an_executor_is_seen_by_a_file_that_it_may_write(pods):
    (executor,) = pods["executor"]["containers"]
    (file,) = [entry["value"] for entry in executor["env"] if entry["name"] == "EXECUTOR_READY_FILE"]
    assert executor["startupProbe"]["exec"]["command"] == ["test", "-e", file]
    assert any(Path(file).is_relative_to(mount["mountPath"]) for mount in executor["volumeMounts"])


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
