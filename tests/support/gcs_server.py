"""A Google Cloud Storage server for tests: translates Google's XML API to the S3 server behind it.

Both APIs have the same paths, bodies and lists. Names of headers differ, and so do conditions: Google counts the
generations of each name, and generation 0 is "no object". No emulator on PyPI answers the requests of obstore, and none
checks the signature in a URL, as this server does.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import threading
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from support import http_servers
from support.s3_server import SIGNED, S3Server

if TYPE_CHECKING:  # the environments of PyTorch and TFDS, which import this module, have no cryptography
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

TOKEN: Final = "google-token"  # noqa: S105 (the server's own)
"""What the server takes as credentials: any token, but some."""

_CONDITION: Final = "x-goog-if-generation-match"
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class GcsServer:
    """The server on a port of 127.0.0.1, for as long as its ``with`` block."""

    scheme: Final = "gs"

    def __init__(self, storage: S3Server) -> None:
        self.storage = storage
        self._writing = threading.Lock()
        self._numbers = count(1_700_000_000_000_000)
        self._generations: dict[str, int] = {}
        self._server = http_servers.running(type("Handler", (_Handler,), {"gcs": self}))

    def environment(self, port: int | None = None) -> dict[str, str]:
        """The variables of a client that reaches the server at ``port``, its own or a proxy's."""
        return {"GOOGLE_BASE_URL": f"http://127.0.0.1:{port or self.port}", "GOOGLE_BEARER_TOKEN": TOKEN}

    @cached_property
    def _key(self) -> RSAPrivateKey:
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

        return generate_private_key(65537, 2048)

    def account(self) -> str:
        """The key of a service account, as Google gives it; the server checks signatures of this one."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        facts = {"type": "service_account", "client_email": "team@lab.example", "private_key_id": "1"}
        return json.dumps(facts | {"private_key": key})

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket."""
        self.storage.create_bucket(name)

    def answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Carry out a request. Returns the status, the headers and the body of the response."""
        parts, condition = urlsplit(target), headers.pop(_CONDITION, None)
        path = quote(unquote(parts.path))  # obstore escapes signs in the names of buckets, which moto takes literally
        target, query = f"{path}?{parts.query}", parse_qs(parts.query, keep_blank_values=True)
        if "X-Goog-Signature" in query and method == "PUT":
            headers |= {} if condition is None else {_CONDITION: condition}
            refusal = self._check_signed(parts, query, headers, body)
            if refusal is not None:
                return refusal
            headers.pop(_CONDITION, None)
            target, query = path, {}
            headers |= {"authorization": TOKEN}
        headers = {_translate(name, "x-goog-", "x-amz-"): value for name, value in headers.items()}
        if headers.pop("authorization", None) is not None:  # without it, a request is anonymous for the S3 server, too
            headers |= {"authorization": SIGNED["Authorization"]}
        if method in ("GET", "HEAD") or "partNumber" in query or "uploads" in query:
            return self._forward(method, target, headers, body)
        with self._writing:
            exists = self._exists(path)
            generation = self._generations.get(path, 1) if exists else 0
            if condition is not None and int(condition) != generation:
                if not self._exists("/" + path.split("/")[1]):
                    return _refusal(404, "NoSuchBucket")
                return _refusal(412, "PreconditionFailed")
            if method == "DELETE" and not exists and "uploadId" not in query:
                return _refusal(404, "NoSuchKey")  # S3 does not mind
            self._generations[path] = next(self._numbers)
            return self._forward(method, target, headers, body)

    def _check_signed(
        self, parts: SplitResult, query: dict[str, list[str]], headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes] | None:
        """Google's rules for a PUT to a URL with a signature, and for what its headers promise."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        names, moment = query["X-Goog-SignedHeaders"][0].split(";"), query["X-Goog-Date"][0]
        scope = query["X-Goog-Credential"][0].removeprefix("team@lab.example/")
        if set(names) - set(headers):
            return _refusal(400, "MalformedSecurityHeader")
        signed = "&".join(part for part in parts.query.split("&") if not part.startswith("X-Goog-Signature="))
        lines = [f"{name}:{headers[name]}" for name in names]
        request = ["PUT", parts.path, signed, *lines, "", ";".join(names), "UNSIGNED-PAYLOAD"]
        digest = hashlib.sha256("\n".join(request).encode()).hexdigest()
        text = f"GOOG4-RSA-SHA256\n{moment}\n{scope}\n{digest}".encode()
        try:
            signature = bytes.fromhex(query["X-Goog-Signature"][0])
            self._key.public_key().verify(signature, text, PKCS1v15(), SHA256())
        except InvalidSignature:
            return _refusal(403, "SignatureDoesNotMatch")
        age = datetime.now(UTC) - datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if age > timedelta(seconds=int(query["X-Goog-Expires"][0])):
            return _refusal(400, "ExpiredToken")
        least, _, most = headers.get("x-goog-content-length-range", f"0,{len(body)}").partition(",")
        if not int(least) <= len(body) <= int(most):
            return _refusal(400, "EntityTooLarge")
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        return None if headers.get("content-md5", md5) == md5 else _refusal(400, "BadDigest")

    def _exists(self, path: str) -> bool:
        return self._forward("HEAD", path, {"authorization": SIGNED["Authorization"]}, b"")[0] == 200

    def _forward(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        server = http.client.HTTPConnection("127.0.0.1", self.storage.port, timeout=60)
        try:
            server.request(method, target, body=body, headers=headers)
            answer = server.getresponse()
            content = answer.read()
        finally:
            server.close()
        found = {
            _translate(name.lower(), "x-amz-", "x-goog-"): value
            for name, value in answer.headers.items()
            if name.lower() not in _HOP_BY_HOP
        }
        generation = self._generations.get(urlsplit(target).path, 1)
        found |= {"x-goog-generation": str(generation), "x-goog-metageneration": "1"}
        if method == "HEAD":
            found["content-length"] = answer.headers["Content-Length"] or "0"
        return answer.status, found, content

    def __enter__(self) -> Self:
        self.port = self._server.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.__exit__(*error)


class _Handler(http_servers.Handler):
    protocol_version = "HTTP/1.1"
    gcs: GcsServer

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = {name.lower(): value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        status, headers, content = self.gcs.answer(self.command, self.path, asked, body)
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in headers and status not in (204, 304):
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle


def _translate(name: str, old: str, new: str) -> str:
    return new + name.removeprefix(old) if name.startswith(old) else name


def _refusal(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    content = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code></Error>'.encode()
    return status, {"content-type": "application/xml"}, content
