"""A small OpenID Connect provider over HTTP. It checks the requests of the client."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "control plane", "a secret of the client"


class Provider:
    """Signs in everybody as the user `claims`. Tests change the attributes to make it misbehave."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.claims: dict[str, Any] = {"sub": "1", "email": "Ann@example.org", "email_verified": True, "groups": []}
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.signing_key = self.key
        self.token_claims: dict[str, Any] = {}
        self.document: dict[str, Any] = {}
        self.codes: dict[str, dict[str, str]] = {}

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/jwks",
            **self.document,
        }

    def keys(self) -> dict[str, Any]:
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**key, "kid": "one", "alg": "RS256", "use": "sig"}]}

    def authorize(self, query: dict[str, str]) -> str:
        """Return the address to which the browser is redirected."""
        assert query["response_type"] == "code" and query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256" and query["nonce"] and "openid" in query["scope"].split()
        self.codes[code := secrets.token_hex(8)] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str]) -> dict[str, Any]:
        query = self.codes.pop(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == query["code_challenge"]
        assert (form["client_id"], form["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)
        assert form["redirect_uri"] == query["redirect_uri"]
        claims = {
            "iss": self.url, "aud": CLIENT_ID, "sub": "1", "nonce": query["nonce"], "exp": time.time() + 60,
            "iat": time.time(), **self.token_claims,
        }  # fmt: skip
        id_token = jwt.encode(claims, self.signing_key, algorithm="RS256", headers={"kid": "one"})
        return {"access_token": "an access token", "token_type": "Bearer", "id_token": id_token}


class Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/authorize":
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            self.send_response(302)
            self.send_header("Location", self.provider.authorize(query))
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if parts.path == "/userinfo":
            assert self.headers["Authorization"] == "Bearer an access token"
            return self.answer(self.provider.claims)
        documents = {"/.well-known/openid-configuration": self.provider.discovery, "/jwks": self.provider.keys}
        return self.answer(documents[parts.path]())

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        assert self.path == "/token"
        self.answer(self.provider.token({key: values[0] for key, values in form.items()}))

    def answer(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def running_provider() -> Iterator[Provider]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("HandlerOfProvider", (Handler,), {"provider": provider})
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
