"""An S3 server for tests: moto in a process of its own, on a free port of 127.0.0.1, with its objects in memory."""

from __future__ import annotations

import http.client
import subprocess
import sys
from typing import Final, Self

_SCRIPT: Final = """
import logging, sys, threading
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

application, writing = create_backend_app("s3"), threading.Lock()

def one_write_at_a_time(environment, start_response):
    # moto looks whether a name is free, then writes: of two conditional requests at once, both would succeed.
    if environment["REQUEST_METHOD"] in ("GET", "HEAD"):
        return application(environment, start_response)
    with writing:
        return application(environment, start_response)

server = make_server("127.0.0.1", 0, one_write_at_a_time, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()  # the tests' process has ended, however it did
"""

CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
"""What the server takes: anything, but something."""

SIGNED: Final = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=tester/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0",
    "Content-Type": "application/octet-stream",
}


class S3Server:
    """The server, for as long as its ``with`` block."""

    scheme: Final = "s3"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip().isdigit(), "moto did not start; see its output above"
        self.port = int(line)
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:  # closes its standard input, at which it ends
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    def environment(self, port: int | None = None) -> dict[str, str]:
        """The variables of a client that reaches the server at ``port``, its own or a proxy's."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}"}

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket."""
        status, answer = self.request("PUT", f"/{name}")
        assert status == 200, answer

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """Send one signed request past the registry, e.g. ``PUT /bucket``; the status and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            # A bucket is created without a body or length: moto treats an empty body as an invalid configuration.
            connection.request(method, path, body=body or None, headers=SIGNED | headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
