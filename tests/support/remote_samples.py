"""A store that behaves as one on another machine, and keeps its files in memory: it counts requests."""

from __future__ import annotations

from concurrent.futures import Future
from hashlib import sha256

from registry.storage.faults import StoredFile
from registry.storage.remote import RemoteFile
from registry.storage.store import Names, ReadOnlyStore


class MemoryObjects(ReadOnlyStore):
    """Files that are read by ranges, with ETags that stay when ``files`` is changed.

    ``requests`` holds the (name, start, stop) of each request.
    """

    refusal = "it is only read"
    url = "test://files"
    local_root = None

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.tags = {name: f'"{sha256(content).hexdigest()}"' for name, content in files.items()}
        self.requests: list[tuple[str, int, int]] = []

    def locate(self, name: str) -> str:
        return f"{self.url}/{name}"

    def open(self, name: str) -> StoredFile:
        content = self.files[name]

        def begin(start: int, stop: int) -> Future[bytes]:
            self.requests.append((name, start, stop))
            future: Future[bytes] = Future()
            future.set_result(content[start:stop])
            return future

        return RemoteFile(begin, path=self.locate(name), num_bytes=len(content), entity_tag=self.tags[name])

    def size(self, name: str) -> int:
        return len(self.files[name])

    def exists(self, name: str) -> bool:
        return name in self.files

    def list(self, folder: str = "") -> Names:
        return sorted(self.files) if not folder else []

    def folders(self, parent: str = "") -> Names:  # noqa: ARG002 (it has none)
        return []

    def child(self, name: str) -> MemoryObjects:
        raise NotImplementedError(name)
