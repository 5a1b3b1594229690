"""What the client of an agent says of the address that it is given."""

import pytest
from structlog.testing import capture_logs

from controlplane.agent.client import Client, Refused


@pytest.mark.parametrize(
    ("url", "in_clear"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost:8000/", False),
        ("http://192.0.2.7:8000", True),  # of the documentation: nobody's
        ("https://192.0.2.7", False),
    ],
)
def test_it_warns_when_tokens_would_travel_in_clear_to_another_machine(url, in_clear):
    with capture_logs() as lines:
        Client(url)
    assert [line["log_level"] for line in lines] == ["warning"] * in_clear
    assert all(f"in clear to {url}" in line["event"] for line in lines)


def test_an_address_that_sends_its_callers_elsewhere_is_refused_with_that_address(monkeypatch):
    class Moved:
        status, data, reason, headers = 301, b"", "Moved", {"Location": "https://control.example/api/v1/servers"}

    client = Client("http://127.0.0.1:8000")
    monkeypatch.setattr(client._pool, "request", lambda *_, **__: Moved())
    with pytest.raises(Refused, match=r"https://control\.example/api/v1/servers: use that"):
        client.post("/servers", {}, "token")
