"""The nginx configuration in deploy/, run by a real nginx in front of a real web process."""

import re
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack
from http.client import HTTPSConnection

import pytest

from tests.support.missing import skip_without
from tests.support.processes import ROOT, eventually, fleet, free_port

pytestmark = pytest.mark.acceptance

NAME = "controlplane.example.org"
MAIN = """
daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
include {folder}/controlplane.conf; }}
"""


class Proxy:
    def __init__(self, folder, running):
        web = running.web("web", port=free_port()).removeprefix("http://")
        self.port, self.tokens = free_port(), {role: running.token(role) for role in ("client", "worker")}
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={NAME}", "-days", "1",
             "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
        text = (ROOT / "deploy/nginx/controlplane.conf").read_text()
        for old, new in (
            ("127.0.0.1:8000", web),
            ("listen 443", f"listen 127.0.0.1:{self.port}"),
            ("/etc/nginx/controlplane.crt", str(folder / "cert.pem")),
            ("/etc/nginx/controlplane.key", str(folder / "key.pem")),
        ):
            assert old in text
            text = text.replace(old, new)
        (folder / "controlplane.conf").write_text(text)
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
        command = ["nginx", "-e", str(folder / "nginx.log"), "-c", str(folder / "nginx.conf")]
        subprocess.run([*command, "-t"], check=True, capture_output=True)
        self.process = subprocess.Popen(command)
        self.tls = ssl.create_default_context()
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        eventually(lambda: self.is_there(), why="nginx answers")

    def is_there(self):
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def call(self, method, path, body=None, source="127.0.0.1", **headers):
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=30, source_address=(source, 0), context=self.tls)
        try:
            connection.request(method, path, body, {"Host": NAME, **headers})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    if not shutil.which("nginx"):
        skip_without("nginx is not installed")
    folder = tmp_path_factory.mktemp("nginx")
    folder.chmod(0o755)
    with fleet(tmp_path_factory.mktemp("proxy"), BEHIND_TLS="1", ALLOWED_HOSTS=f"{NAME},localhost") as running:
        proxy = Proxy(folder, running)
        try:
            yield proxy
        finally:
            proxy.process.terminate()
            proxy.process.wait(60)


def test_pages_and_calls_pass_the_proxy_and_probes_stay_inside(proxy):
    assert proxy.call("GET", "/admin/login/")[0] == 200
    job = b'{"action": {"type": "script", "command": "true"}, "unmatched": "wait"}'
    headers = {"Authorization": f"Bearer {proxy.tokens['client']}", "Content-Type": "application/json"}
    assert proxy.call("POST", "/api/v1/jobs", job, **headers)[0] == 201
    assert proxy.call("GET", "/livez")[0] == proxy.call("GET", "/metrics")[0] == 404


def test_half_bodies_and_half_heads_of_a_stranger_stop_nobody_behind_the_proxy(proxy):
    with ExitStack() as held:
        for number in range(100):
            one = held.enter_context(
                socket.create_connection(("127.0.0.1", proxy.port), source_address=("127.0.0.2", 0))
            )
            if number % 2:
                one = held.enter_context(proxy.tls.wrap_socket(one))
                one.sendall(f"POST /admin/login/ HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 500\r\n\r\nx".encode())
        assert proxy.call("GET", "/admin/login/", source="127.0.0.3")[0] == 200


def test_tries_to_sign_in_are_counted_by_the_address_that_the_proxy_saw(proxy):
    def sign_in(number, source):
        _, headers, page = proxy.call("GET", "/admin/login/", source=source)
        token = re.search(rb'csrfmiddlewaretoken" value="([^"]+)', page)[1].decode()
        form = f"username=ann&password=wrong-{number}&csrfmiddlewaretoken={token}"
        invented = {"X-Forwarded-For": f"203.0.113.{number}"}
        return proxy.call(
            "POST", "/admin/login/", form, source, Cookie=headers["Set-Cookie"].partition(";")[0],
            Referer=f"https://{NAME}/admin/login/", **{"Content-Type": "application/x-www-form-urlencoded", **invented},
        )[0]  # fmt: skip

    assert 429 in [sign_in(number, "127.0.0.4") for number in range(8)]
    assert sign_in(9, "127.0.0.5") == 200, "the page says that the password is wrong"
