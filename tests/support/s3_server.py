"""An S3 server for tests: moto in a process of its own, on a free port of 127.0.0.1, with its objects in memory."""

from __future__ import annotations

import http.client
import subprocess
import sys
from typing import Final, Self

_SCRIPT: Final = r"""
import base64, hashlib, hmac, io, logging, sys, threading
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs, unquote
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

application, writing = create_backend_app("s3"), threading.Lock()

def header_of(environment, name):
    key = name.upper().replace("-", "_")
    return environment.get(key if key in ("CONTENT_LENGTH", "CONTENT_TYPE") else f"HTTP_{key}", "")

def is_signed(environment, query):
    # moto believes every signature: this is S3's rule for one in a URL.
    credential, _, scope = query["X-Amz-Credential"][0].partition("/")
    date, names = query["X-Amz-Date"][0], query["X-Amz-SignedHeaders"][0].split(";")
    age = datetime.now(timezone.utc) - datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    sent = [key[5:].lower().replace("_", "-") for key in environment if key.startswith("HTTP_X_AMZ_")]
    if credential != "tester" or age > timedelta(seconds=int(query["X-Amz-Expires"][0])) or set(sent) - set(names):
        return False
    path, _, text = environment["RAW_URI"].partition("?")
    parts = sorted(part for part in text.split("&") if not part.startswith("X-Amz-Signature="))
    lines = [f"{name}:{header_of(environment, name)}" for name in names]
    request = [environment["REQUEST_METHOD"], path, "&".join(parts), *lines, "", ";".join(names), "UNSIGNED-PAYLOAD"]
    digest = hashlib.sha256("\n".join(request).encode()).hexdigest()
    key = b"AWS4secret"
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signed = "\n".join(["AWS4-HMAC-SHA256", date, scope, digest])
    return hmac.digest(key, signed.encode(), "sha256").hex() == query["X-Amz-Signature"][0]

def is_intact(environment):
    # moto does not compare the sha256 with the bytes, and keeps it only with another header.
    body = environment["wsgi.input"].read(int(header_of(environment, "content-length") or 0))
    environment["wsgi.input"] = io.BytesIO(body)
    environment["HTTP_X_AMZ_SDK_CHECKSUM_ALGORITHM"] = "SHA256"
    sha256 = base64.b64encode(hashlib.sha256(body).digest()).decode()
    return header_of(environment, "x-amz-checksum-sha256") == sha256

def one_write_at_a_time(environment, start_response):
    query = parse_qs(environment["QUERY_STRING"])
    if "X-Amz-Signature" in query and IS_STRICT:
        problem = None if is_signed(environment, query) else ("403 Forbidden", b"SignatureDoesNotMatch")
        if problem is None and environment["REQUEST_METHOD"] == "PUT" and not is_intact(environment):
            problem = "400 Bad Request", b"BadDigest"
        if problem is not None:
            environment["wsgi.input"].read(int(header_of(environment, "content-length") or 0))
            content = b"<Error><Code>" + problem[1] + b"</Code></Error>"
            start_response(problem[0], [("Content-Length", str(len(content)))])
            return [content]
    # moto looks whether a name is free, then writes: of two conditional requests at once, both would succeed.
    if environment["REQUEST_METHOD"] in ("GET", "HEAD"):
        return application(environment, start_response)
    with writing:
        if "uploadId" in query and header_of(environment, "if-none-match") == "*" and IS_STRICT:
            statuses = []
            head = environment | {"REQUEST_METHOD": "HEAD", "QUERY_STRING": "", "wsgi.input": io.BytesIO()}
            head |= {"RAW_URI": environment["RAW_URI"].partition("?")[0], "CONTENT_LENGTH": "0"}
            head["REQUEST_URI"] = head["RAW_URI"]
            list(application(head, lambda status, *_: statuses.append(status)))
            if statuses[0].startswith("200"):  # moto ignores the condition at the end of an upload in parts
                environment["wsgi.input"].read(int(header_of(environment, "content-length") or 0))
                content = b"<Error><Code>PreconditionFailed</Code></Error>"
                start_response("412 Precondition Failed", [("Content-Length", str(len(content)))])
                return [content]
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

    def __init__(self, *, is_strict: bool = True) -> None:
        """``is_strict``: whether it checks signatures in URLs, and the sha256 of what they bring, as Amazon's does."""
        self._script = _SCRIPT.replace("IS_STRICT", str(is_strict))

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = self._process.stdout.readline()
        assert line.strip().isdigit(), "moto did not start; see its output above"
        self.port = int(line)
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:  # closes its standard input, at which it ends
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
