"""An Azure Blob Storage server for tests: azurite, which ``.ci/beside azure`` installs with npm into ``.azurite``."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import re
import shutil
import subprocess
from email.utils import formatdate
from pathlib import Path
from typing import Final, Self

_SCRIPT: Final = Path(__file__).parents[2] / ".azurite/node_modules/azurite/dist/src/blob/main.js"
_ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = base64.b64encode(b"the emulator takes the key that it is started with, any of 64 bytes").decode()
_READY: Final = re.compile(r"successfully (?:listening|listens) (?:at|on) http://127\.0\.0\.1:(\d+)")


class AzureServer:
    """The server on a port of 127.0.0.1, for as long as its ``with`` block. Objects are in memory."""

    scheme: Final = "az"

    def __enter__(self) -> Self:
        node = shutil.which("node")
        assert node is not None, "azurite needs Node: https://nodejs.org"
        assert _SCRIPT.is_file(), "azurite is not installed: run .ci/beside azure"
        options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck"]
        self._process = subprocess.Popen(
            [node, str(_SCRIPT), *options, "--disableTelemetry"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"},
        )
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if found := _READY.search(line):
                self.port = int(found[1])
                return self
        raise AssertionError("azurite did not start:\n" + "".join(said))

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.terminate()

    def environment(self, port: int | None = None) -> dict[str, str]:
        """The variables of a client that reaches the server at ``port``, its own or a proxy's."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port or self.port}",
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        }

    def create_bucket(self, name: str) -> None:
        """Create an empty container, by one request with a signature of the shared key."""
        path, headers = f"/{_ACCOUNT}/{name}", {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
        signed = "".join(f"{key}:{value}\n" for key, value in headers.items())
        text = f"PUT{12 * chr(10)}{signed}/{_ACCOUNT}{path}\nrestype:container"
        digest = hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)
        authorization = f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers |= {"Authorization": authorization, "Content-Length": "0"}
            connection.request("PUT", f"{path}?restype=container", headers=headers)
            answer = connection.getresponse()
            assert answer.status == 201, answer.read()
        finally:
            connection.close()
