"""Addresses at which a process of the control plane reaches itself."""

import socket

import psutil
import pytest

from controlplane.agent.api.client import Unreachable
from controlplane.observability.address import build_own_client, first_allowed_host, reachable_host
from tests.support.standin import ControlPlane


@pytest.mark.parametrize(
    ("listens", "reached"),
    [
        ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("10.1.2.3", "10.1.2.3"),  # noqa: S104
        ("::", "[::1]"), ("::1", "[::1]"),
    ],
)  # fmt: skip
def test_a_server_is_reached_where_it_listens(listens, reached):
    assert reachable_host(listens) == reached


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["localhost", "127.0.0.1"], "localhost"), (["*"], ""), (["*", ".example.com"], "example.com"), ([], ""),
        (["[::1]"], "[::1]"),
    ],
)  # fmt: skip
def test_a_process_calls_itself_by_a_name_under_which_django_answers(settings, names, expected):
    settings.ALLOWED_HOSTS = names
    assert first_allowed_host() == expected


class Listening(psutil.Process):
    """Process with only these sockets, because other tests of the run may listen too."""

    sockets = ()

    def net_connections(self, kind="tcp"):
        names = [one.getsockname() for one in self.sockets]
        return [connection for connection in super().net_connections(kind) if connection.laddr in names]


def test_a_process_finds_the_port_on_which_it_listens(monkeypatch, settings):
    monkeypatch.setattr(psutil, "Process", Listening)
    with pytest.raises(Unreachable, match="LIVENESS_WITNESS_URL"):
        build_own_client()
    with socket.socket() as bound, socket.socket() as listening:
        monkeypatch.setattr(Listening, "sockets", (bound, listening))
        bound.bind(("127.0.0.1", 0))
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        assert build_own_client().base == f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1"


def test_it_is_asked_for_under_that_name(monkeypatch, settings):
    settings.ALLOWED_HOSTS = ["control.example"]
    plane, hosts = ControlPlane(), []
    monkeypatch.setattr(
        plane._http.RequestHandlerClass, "version_string", lambda self: hosts.append(self.headers["Host"]) or "x"
    )
    try:
        monkeypatch.setattr(psutil, "Process", Listening)
        monkeypatch.setattr(Listening, "sockets", (plane._http.socket,))
        build_own_client().post("/servers", {"instance_id": "one"}, "a token")
    finally:
        plane.close()
    assert hosts == ["control.example"]
