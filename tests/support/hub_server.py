"""A server that answers as the Hugging Face Hub does, for the calls that download a dataset repository."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_LARGE = 100
"""Files of more bytes are kept as LFS objects, whose ETag is their sha256."""


@dataclass
class Hub:
    """The repositories of a hub.

    Attributes:
        commits: the files of each commit, by repository, in order; the last is ``main``.
        refused: the error code of a repository that may not be read, such as ``GatedRepo``.
        token: the token without which nothing is answered; empty for a public hub.
        requests: the method and path of each request.
        on_request: called with the path before a request is answered.
    """

    commits: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    token: str = ""
    requests: list[str] = field(default_factory=list)
    on_request: Callable[[str], None] = field(default=lambda _: None)

    @staticmethod
    def sha_of(number: int) -> str:
        return f"{number + 1:040x}"

    def files(self, repository: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commits = self.commits[repository]
        for number, files in enumerate(commits):
            if revision in (self.sha_of(number), f"v{number + 1}"):
                return self.sha_of(number), files
        return (self.sha_of(len(commits) - 1), commits[-1]) if revision == "main" else None


def _entry(name: str, content: bytes) -> dict[str, Any]:
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 (as git does)
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": git}
    if len(content) > _LARGE:
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return entry


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(is_head=False)

        def do_HEAD(self) -> None:
            self.answer(is_head=True)

        def answer(self, *, is_head: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            hub.on_request(path)
            api = re.fullmatch(r"/api/datasets/(.+?)(?:/(revision|tree)/([^/]+))?", path)
            file = re.fullmatch(r"/datasets/(.+?)/resolve/([^/]+)/(.+)", path)
            match = api or file
            repository = match[1] if match else ""
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self.fail(401, "RepoNotFound")
            elif repository in hub.refused:
                self.fail(403 if hub.refused[repository] == "GatedRepo" else 401, hub.refused[repository])
            elif repository not in hub.commits:
                self.fail(401, "RepoNotFound")
            elif (commit := hub.files(repository, (api[3] if api else file[2] if file else None) or "main")) is None:
                self.fail(404, "RevisionNotFound")
            elif api is not None:
                sha, files = commit
                entries = [_entry(name, content) for name, content in files.items()]
                names = [{"rfilename": name} for name in files]
                self.send_json(entries if api[2] == "tree" else {"id": repository, "sha": sha, "siblings": names})
            elif file is not None and file[3] in commit[1]:
                self.send_file(commit[0], file[3], commit[1][file[3]], is_head=is_head)
            else:
                self.fail(404, "EntryNotFound")

        def fail(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send_json(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def send_file(self, sha: str, name: str, content: bytes, *, is_head: bool) -> None:
            entry = _entry(name, content)
            self.send_response(200)
            self.send_header("X-Repo-Commit", sha)
            self.send_header("ETag", f'"{entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if not is_head:
                self.wfile.write(content)

    return Handler


@contextmanager
def serve(hub: Hub) -> Iterator[str]:
    """Serve ``hub``; yields its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
