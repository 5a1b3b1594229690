"""Texts of alerts in chats: names are shown unchanged, and addresses are called only if that is allowed."""

import json
import logging
import socket
import sys
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import quote, quote_plus
from uuid import uuid4

import pytest
import urllib3

from jobs.checks import check_alerts
from jobs.services import alert_calls, alert_channels
from jobs.services.alert_calls import NotSent, RefusedAddress, find_address, is_public
from jobs.services.alert_texts import BREAK, write_for_service

NAME = (
    "<b <!channel> <@U1> @everyone @here <https://evil.example|fix> [fix](http://evil.example) *_[ `c` ~x~ |y| # &lt;"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Apprise imports many plugins, and they import what they like
    import apprise

    apprise.Apprise.instantiate("json://localhost")

PAYLOAD = {
    "type": "incident.opened",
    "data": {"instance": "control plane", "rule": "server_lost", "summary": f"1 server lost: {NAME}"},
}
TELEGRAM = "tgram://123456789:abcdefg_hijklmnopqrstuvwxyz/12315544/"
SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/"
DISCORD = "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"


@pytest.fixture
def chat(monkeypatch):
    """Receive the messages that Apprise sends to any chat service; they are in `got`."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer = b'{"ok": true, "result": {"message_id": 1}}' if "bot" in self.path else b"ok"
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    host = f"127.0.0.1:{server.server_port}"
    for address, name, value in (
        (TELEGRAM, "notify_url", f"http://{host}/bot"),
        (SLACK, "webhook_url", f"http://{host}/services"),
        (DISCORD, "notify_url", f"http://{host}/webhooks"),
    ):
        monkeypatch.setattr(type(apprise.Apprise.instantiate(address)), name, value)
    yield SimpleNamespace(got=got, host=host)
    server.shutdown()
    thread.join()
    server.server_close()


def send(chat, address, payload=PAYLOAD):
    alert_channels.notify_apprise(address, payload)
    return chat.got.pop()


def test_telegram_gets_html_in_which_a_name_is_a_text(chat):
    body = send(chat, TELEGRAM)
    assert body["parse_mode"] == "HTML"
    assert "1 server lost: &lt;b &lt;!channel&gt;" in body["text"] and "&amp;lt;" in body["text"]
    assert "<b " not in body["text"] and "<a" not in body["text"] and "@everyone" not in body["text"]
    body = send(chat, f"{TELEGRAM}?format=markdown")
    assert r"\*\_\[ \`c\`" in body["text"]


@pytest.mark.parametrize("options", ["", "?format=markdown", "?blocks=yes"])
def test_slack_sees_no_mention_and_no_link_in_a_name(chat, options):
    text = json.dumps(send(chat, SLACK + options), ensure_ascii=False)
    assert not any(raw in text for raw in ("<!channel", "<@U1", "<https://evil", "@everyone", "@here"))


def test_in_slack_a_name_is_shown_as_it_is(chat):
    body = send(chat, SLACK)
    (shown,) = body["attachments"]
    assert body["mrkdwn"] is False and "&lt;b &lt;!channel&gt;" in shown["text"] and "*_[ `c` ~x~" in shown["text"]


@pytest.mark.parametrize(
    "address", [DISCORD, f"{DISCORD}?format=markdown", "mmost://{host}/3ccdd113474722377935511fc85d3d"]
)
def test_a_chat_that_shows_text_as_markdown_gets_its_markup_escaped(chat, address):
    text = json.dumps(send(chat, address.format(host=chat.host)), ensure_ascii=False)
    assert not any(
        raw in text for raw in ("<!channel", "<@U1", "@everyone", "@here", " [fix]", " *_[", " `c`", "<https")
    )
    assert json.dumps(r"\*\_\[ \`c\` \~x\~ \|y\| ")[1:-1] in text


def test_a_program_gets_a_name_without_any_change(chat):
    body = send(chat, f"json://{chat.host}/hook")
    assert NAME in body["title"] and NAME in body["message"]


def test_a_block_of_code_is_not_ended_by_a_name():
    data = {**PAYLOAD["data"], "summary": "lost: ``` @all"}
    subject, text = write_for_service("zulip", "text", {**PAYLOAD, "data": data})
    assert subject == "[control plane] server lost"
    assert text.startswith("```\n") and text.endswith("\n```") and text.count("```") == 2 and "@all" not in text


def test_a_line_break_in_a_name_starts_no_header_of_an_e_mail():
    data = {**PAYLOAD["data"], "summary": "lost: a\r\nBcc: b@example.org"}
    subject, text = write_for_service("json", "text", {**PAYLOAD, "data": data})
    assert "\n" not in subject and "\r" not in text and text.split("\n")[0] == "lost: a  Bcc: b@example.org"


def test_an_address_of_e_mail_is_no_mention():
    data = {**PAYLOAD["data"], "summary": "by ops@example.org, @ops"}
    _, text = write_for_service("signal", "text", {**PAYLOAD, "data": data})
    assert text.split("\n")[0] == f"by ops@example.org, @{BREAK}ops"


PRIVATE = """
127.0.0.1 10.0.0.1 172.16.0.1 192.168.0.1 169.254.169.254 100.64.0.1 0.0.0.0 255.255.255.255 240.0.0.1 224.0.0.1
239.255.255.255 192.0.2.1 198.18.0.1 192.88.99.1 :: ::1 ::7f00:1 ::808:808 ::ffff:127.0.0.1 ::ffff:10.0.0.1
::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::e000:1 64:ff9b:1::808:808 64:ff9b:1:ffff::7f00:1
2002:7f00:1:: 2002:808:808::1 2001:0:808:808::1 2001:db8::1 fe80::1%eth0 fec0::1 fc00::1 fd00:ec2::254 ff02::1 ff0e::1
100::1 5f00::1 4000::1
"""
PUBLIC = "8.8.8.8 1.1.1.1 2606:4700:4700::1111 ::ffff:8.8.8.8 64:ff9b::8.8.8.8"


@pytest.mark.parametrize("address", PRIVATE.split())
def test_an_address_that_may_lead_to_a_private_network_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_an_address_of_a_host_on_the_internet_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f000001", "2130706433", "::1", "::ffff:127.0.0.1"])
def test_a_host_is_judged_by_the_address_that_it_means(host):
    with pytest.raises(RefusedAddress, match="private network"):
        find_address(host, 80, allow_private=False)


def test_a_name_with_one_private_address_among_others_is_refused(monkeypatch):
    def look_up(host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("8.8.8.8", "10.0.0.1")]

    monkeypatch.setattr(alert_calls.socket, "getaddrinfo", look_up)
    with pytest.raises(RefusedAddress):
        find_address("example.org", 443, allow_private=False)


@pytest.fixture
def redirecting():
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.path)
            self.send_response(307)
            self.send_header("Location", "/private")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield SimpleNamespace(asked=asked, port=server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_redirect_is_not_followed(redirecting, settings):
    settings.ALERTS = {"WEBHOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "WEBHOOK_ALLOW_PRIVATE": True}
    with pytest.raises(NotSent, match="responded with 307"):
        alert_channels.post_alert(f"http://127.0.0.1:{redirecting.port}/hook", uuid4(), PAYLOAD)
    assert redirecting.asked == ["/hook"]


def test_the_checked_address_is_called_even_if_dns_changes_later(redirecting, monkeypatch, settings):
    answers = ["127.0.0.1", "127.0.0.2"]

    def look_up(host, port, *_, **__):
        address = host if host.startswith("127.") else answers.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(alert_calls.socket, "getaddrinfo", look_up)
    assert alert_calls.call_url("POST", f"http://x.test:{redirecting.port}/a", {}, b"", allow_private=True) == 307
    assert answers == ["127.0.0.2"]


SECRETS = ("T0K3N/s%20cret+x", "pass&word w")


@pytest.mark.parametrize("write", [str, quote, quote_plus, lambda text: json.dumps(text).replace("/", r"\/")])
@pytest.mark.django_db
def test_an_error_of_a_channel_shows_nothing_secret_of_its_address(settings, monkeypatch, write):
    path, password = SECRETS
    settings.ALERTS = {
        "WEBHOOK_URLS": f"https://user:{quote(password)}@hooks.example.org/services/{path}?key=v4lu3secret",
        "WEBHOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    }

    def fail(*_, **__):
        said = [write(text) for text in (path, password, "v4lu3secret")]
        raise urllib3.exceptions.HTTPError(f"hooks.example.org: Max retries exceeded: {said}")

    monkeypatch.setattr(alert_channels, "call_url", fail)
    with pytest.raises(NotSent) as raised:
        alert_channels.send_message("webhook 1", uuid4(), "opened", PAYLOAD)
    shown = str(raised.value)
    assert shown.startswith("HTTPError: hooks.example.org: Max retries exceeded: ")
    assert not any(part in shown for part in ("T0K3N", "cret", "pass", "word", "v4lu3"))
    assert raised.value.__cause__ is None and raised.value.__suppress_context__, "no traceback repeats it"


@pytest.mark.django_db
def test_an_error_of_a_chat_shows_nothing_secret_of_its_address(settings, monkeypatch):
    settings.ALERTS = {"APPRISE_URLS": SLACK}

    def fail(self, **_):
        raise OSError("no route to https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ")

    monkeypatch.setattr(apprise.Apprise, "notify", fail)
    with pytest.raises(NotSent) as raised:
        alert_channels.send_message("apprise 1", uuid4(), "opened", PAYLOAD)
    assert str(raised.value) == "OSError: no route to https://hooks.slack.com/services/***/***/***"


def test_the_checks_do_not_repeat_an_address(settings):
    settings.ALERTS = {
        "WEBHOOK_URLS": "https://a.example ftp://hooks.example.org/services/T0K3N",
        "HEARTBEAT_URL": "T0K3N",
    }
    problems = [message.msg for message in check_alerts() if message.id == "jobs.E007"]
    assert len(problems) == 2 and "address 2" in problems[0] and not any("T0K3N" in problem for problem in problems)


def test_without_apprise_the_check_and_the_message_name_the_extra(settings, monkeypatch):
    settings.ALERTS = {"APPRISE_URLS": SLACK}
    monkeypatch.setitem(sys.modules, "apprise", None)
    (problem,) = check_alerts()
    assert problem.id == "jobs.E011" and "controlplane[chat]" in problem.hint
    with pytest.raises(NotSent, match=r"controlplane\[chat\]"):
        alert_channels.notify_apprise(SLACK, PAYLOAD)


def test_libraries_do_not_log_the_addresses_of_alerts(caplog):
    for name in ("apprise", "urllib3"):
        assert logging.getLogger(name).getEffectiveLevel() >= logging.WARNING
