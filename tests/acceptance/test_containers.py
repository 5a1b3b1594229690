"""Jobs in real containers of podman: input, output, and no container that outlives its attempt."""

import signal

import pytest

from controlplane.agent.runners.docker import DockerRunner
from tests.support.podman import IMAGE, Podman
from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    podman = Podman(tmp_path_factory.mktemp("podman"))
    podman.start()
    yield podman
    podman.close()


@pytest.fixture(scope="module")
def running(podman, tmp_path_factory):
    with fleet(tmp_path_factory.mktemp("fleet"), CELERY_BROKER_URL="filesystem://", **podman.environment) as running:
        running.url = running.web()
        yield running


@pytest.fixture
def call(running):
    def call(method, path, body=None):
        return running.call(method, f"{running.url}/api/v1{path}", running.token("client"), body)

    return call


@pytest.fixture
def submit(call):
    def submit(action, **fields):
        return call("POST", "/jobs", {"action": {"image": IMAGE, **action}, **fields})["id"]

    return submit


@pytest.fixture
def finish(call):
    return lambda job: eventually(lambda: (read := call("GET", f"/jobs/{job}"))["finished_at"] and read)


@pytest.fixture
def agent(running):
    yield running.agent("in-containers", running.url, "--allow", "script,docker")
    running.end(["in-containers"])


def in_container(command, **fields):
    return {"type": "script", "runner": "docker", "command": command, **fields}


def test_code_gets_payload_and_environment_and_returns_output_and_exit_code(agent, submit, finish):
    look = 'cat; echo " $GREETING $JOB_ATTEMPT $(id -u)"; ls /run/controlplane; echo "0.5 half" > "$JOB_PROGRESS"'
    well = finish(submit(in_container(look, env={"GREETING": "secret words"}), payload={"n": 1}))
    assert well["output"] == {"exit_code": 0, "stdout": '{"n": 1} secret words 1 1000\n'}
    (attempt,) = well["attempts"]
    assert (attempt["progress"], attempt["message"]) == (0.5, "half")
    by_image = finish(submit({"type": "docker", "command": ["/bin/echo", "well"], "cwd": "/tmp"}))
    assert by_image["output"]["stdout"] == "well\n"
    assert finish(submit(in_container("exit 3")))["error"]["code"] == "EXIT_3"
    missing = finish(submit({"type": "docker", "image": "localhost:1/missing"}))["error"]
    assert missing["code"] == "CANNOT_START" and "missing" in missing["message"]


def test_variables_with_line_breaks_reach_the_code_unchanged(agent, submit, finish):
    pem = "-----BEGIN-----\n'a' \"b\" $(c)\n\n"
    env = {"CONTAINERS_CONF": "/nonexistent", "CONTAINERS_STORAGE_CONF": "/nonexistent", "PATH": "/bin", "PEM": pem}
    done = finish(submit(in_container('echo "$CONTAINERS_CONF $PATH"; echo "$PEM|"', env=env)))
    assert done["output"]["stdout"] == f"/nonexistent /bin\n{pem}|\n"


def test_code_above_the_memory_limit_of_its_container_is_out_of_memory(agent, submit, finish, podman):
    limited = podman.call("run", "--rm", "--memory=16M", IMAGE, "/bin/true")
    if limited.returncode:
        pytest.skip(f"the memory of a container is not limited here: {limited.stderr.decode()[-300:]}")
    take = "a=0123456789abcdef; while [ ${#a} -lt 67108864 ]; do a=$a$a; done"
    resources = {"memory": "16M"}
    error = finish(submit(in_container(take, resources=resources)))["error"]
    assert error["code"] == "OUT_OF_MEMORY"
    assert error["message"] == "the kernel killed it: its container may have 16 MiB of memory"
    killed = finish(submit(in_container("sh -c 'kill -9 $$'; exit $?", resources=resources)))["error"]
    assert killed["code"] == "EXIT_137", "it was not the kernel"
    assert podman.names() == []


def test_the_next_attempt_finds_what_the_one_before_kept(agent, submit, finish):
    count = (
        'cd /run/controlplane; [ -e checkpoint ] || { echo 7 > "$JOB_CHECKPOINT"; exit 3; }; cat checkpoint; echo 8 >'
    )
    job = finish(submit(in_container(f'{count} "$JOB_CHECKPOINT"'), max_retries=1, retry_delay_seconds=0))
    assert (job["state"], job["output"]["stdout"], job["checkpoint"]) == ("COMPLETED", "7", 8)


def test_a_cancelled_job_has_no_container(agent, submit, finish, call, podman):
    job = submit(in_container("trap '' TERM; while :; do sleep 0.1; done"))
    (name,) = eventually(podman.names, why="the container runs")
    assert name == f"controlplane-{call('GET', f'/jobs/{job}')['attempts'][0]['id']}"
    call("POST", f"/jobs/{job}/cancel", {})
    assert finish(job)["state"] == "CANCELLED"
    assert podman.names() == []


def test_a_killed_agent_leaves_no_container(agent, submit, podman):
    submit(in_container("sleep 600"))
    eventually(podman.names, why="the container runs")
    agent.send_signal(signal.SIGKILL)
    eventually(lambda: podman.names() == [], why="its reaper has removed it")


def test_a_new_agent_removes_containers_of_a_dead_one_with_its_name(running, podman):
    runner = DockerRunner("docker", [], "docker", "in-containers")
    for name, agent in (("its-own", runner.agent), ("of-another", "another")):
        done = podman.call(
            "run", "--detach", "--name", name, f"--label=controlplane.agent={agent}", IMAGE, "sleep", "600"
        )
        assert done.returncode == 0, done.stderr
    running.agent("in-containers", running.url, "--allow", "docker")
    eventually(lambda: podman.names() == ["of-another"], why="it is removed before the agent registers")
    running.end(["in-containers"])
    podman.close()
