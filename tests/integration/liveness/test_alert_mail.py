"""Alerts by e-mail, sent to a real SMTP server."""

import socketserver
import threading
from email import message_from_bytes
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from jobs.checks import check_alerts
from jobs.services.alert_channels import read_mail_server

pytestmark = pytest.mark.django_db


class Mailbox(socketserver.ThreadingTCPServer):
    """Records the sender, the receiver and the text of each e-mail."""

    daemon_threads = True

    def __init__(self):
        self.letters = []
        super().__init__(("127.0.0.1", 0), Dialogue)


class Dialogue(socketserver.StreamRequestHandler):
    def handle(self):
        self.say(b"220 here")
        told, body = [], None
        for line in self.rfile:
            if body is not None:
                if line == b".\r\n":
                    self.server.letters.append(SimpleNamespace(told=told, message=message_from_bytes(b"".join(body))))
                    told, body = [], None
                    self.say(b"250 taken")
                else:
                    body.append(line)
            elif line.upper().startswith(b"DATA"):
                body = []
                self.say(b"354 go on")
            elif line.upper().startswith(b"QUIT"):
                return self.say(b"221 bye")
            elif b"<nobody@" in line:
                self.say(b"550 no such user")
            elif line.upper().startswith(b"RSET"):
                told = []
                self.say(b"250 well")
            else:
                told.append(line.decode().strip())
                self.say(b"250 well")

    def say(self, line):
        self.wfile.write(line + b"\r\n")


@pytest.fixture
def mailbox(settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with Mailbox() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_e_mail_uses_the_server_and_the_sender_of_the_settings(mailbox, settings):
    settings.ALERTS = {
        "EMAIL_TO": "ops@example.org night@example.org",
        "EMAIL_FROM": "fleet@example.org",
        "EMAIL_URL": f"smtp://127.0.0.1:{mailbox.server_address[1]}",
    }
    call_command("alerts", "test")
    assert [envelope(letter) for letter in mailbox.letters] == [
        ["mail FROM:<fleet@example.org>", "rcpt TO:<ops@example.org>"],
        ["mail FROM:<fleet@example.org>", "rcpt TO:<night@example.org>"],
    ]
    for letter in mailbox.letters:
        assert letter.message["Subject"].startswith("[control plane] Test: ")
        assert letter.message["Message-ID"].endswith("@controlplane>")


def envelope(letter):
    return [word for word in letter.told if word.startswith(("mail", "rcpt"))]


def test_a_refused_address_is_logged_and_the_others_get_their_e_mail(mailbox, settings, capsys):
    settings.ALERTS = {
        "EMAIL_TO": "nobody@example.org ops@example.org",
        "EMAIL_URL": f"smtp://127.0.0.1:{mailbox.server_address[1]}",
    }
    with pytest.raises(CommandError, match="The test failed for at least one channel"):
        call_command("alerts", "test")
    seen = capsys.readouterr().out
    assert "email 1: SMTPRecipientsRefused" in seen and "email 2: sent" in seen
    (letter,) = mailbox.letters
    assert letter.message["To"] == "ops@example.org"


def test_without_an_own_mail_server_the_one_of_django_is_used(mailbox, settings):
    settings.EMAIL_HOST, settings.EMAIL_PORT = mailbox.server_address
    settings.DEFAULT_FROM_EMAIL = "django@example.org"
    settings.ALERTS = {"EMAIL_TO": "ops@example.org"}
    call_command("alerts", "test")
    (letter,) = mailbox.letters
    assert letter.message["From"] == "django@example.org"


@pytest.mark.parametrize(
    ("url", "host", "port", "use_tls", "use_ssl"),
    [
        ("submission://mail.example.org", "mail.example.org", 587, True, False),
        ("smtps://mail.example.org", "mail.example.org", 465, False, True),
        ("smtp://mail.example.org", "mail.example.org", 25, False, False),
        ("submission://[2001:db8::1]:2525", "2001:db8::1", 2525, True, False),
    ],
)
def test_the_scheme_of_a_mail_server_sets_encryption_and_port(url, host, port, use_tls, use_ssl):
    server = read_mail_server(url)
    assert (server["host"], server["port"], server["use_tls"], server["use_ssl"]) == (host, port, use_tls, use_ssl)


def test_a_user_and_a_password_may_have_any_character():
    server = read_mail_server("smtps://me%40example.org:p%2Fw%3A%25@mail.example.org")
    assert (server["username"], server["password"]) == ("me@example.org", "p/w:%")


@pytest.mark.parametrize(
    "url",
    [
        *("mail.example.org", "http://user:secret@mail.example.org", "smtp://user:secret@", "smtp://"),
        *("smtp://user:secret@host:port", "smtp://user:secret@host:99999", "smtp://user:sec/ret@host"),
        *("smtp://user:secret@host?tls=1", "smtp://[user:secret@host"),
    ],
)
def test_a_system_check_reports_an_invalid_address_without_its_password(settings, url):
    settings.ALERTS = {"EMAIL_URL": url}
    (message,) = check_alerts()
    assert message.id == "jobs.E009" and "submission://user:password@host" in message.msg
    assert "secret" not in message.msg and "sec/ret" not in message.msg
