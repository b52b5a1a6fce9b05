"""A server that answers as the Hugging Face Hub does, for the calls that download a dataset repository."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from support import http_servers
from support.http_servers import running

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


def _handler(hub: Hub) -> type[http_servers.Handler]:
    class Handler(http_servers.Handler):
        def do_GET(self) -> None:
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
                self.send_file(commit[0], file[3], commit[1][file[3]])
            else:
                self.fail(404, "EntryNotFound")

        def fail(self, status: int, code: str) -> None:
            self.answer(status, {"X-Error-Code": code})

        def send_json(self, value: Any) -> None:
            self.answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

        do_HEAD = do_GET

        def send_file(self, sha: str, name: str, content: bytes) -> None:
            entry = _entry(name, content)
            tag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
            self.answer(200, {"X-Repo-Commit": sha, "ETag": f'"{tag}"'}, content)

    return Handler


@contextmanager
def serve(hub: Hub) -> Iterator[str]:
    """Serve ``hub``; yields its URL."""
    with running(_handler(hub)) as port:
        yield f"http://127.0.0.1:{port}"
