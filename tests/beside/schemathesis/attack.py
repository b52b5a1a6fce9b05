"""Sends what schemathesis derives from the description of a service, with a token of each role: no 500, as described.

    .ci/beside schemathesis                                     # a bounded sample with a seed, for CI
    REGISTRY_EXAMPLES=100 REGISTRY_SEED=7 .ci/beside schemathesis

``tests/server/test_fuzz.py`` mutates arguments that succeed, which reaches further; this reads only the description.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import urllib3

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.service_calls import fill
from support.services import TestServer, make_token

import registry
from registry.catalog import DataDirectory
from registry.model import Role
from registry.server.data import ServedData
from registry.server.following import EventWatch
from registry.storage import LocalStore

EXAMPLES, SEED = (os.environ.get(f"REGISTRY_{name}", default) for name, default in (("EXAMPLES", "3"), ("SEED", "1")))

LEFT_OUT = "positive_data_acceptance"
"""A schema says which form arguments have, and not every rule about names and states."""

PHASES = {Role.ADMIN: "examples,coverage,fuzzing"}
"""Every edge of each schema is sent once; what a role may not call, it may not call with any arguments."""


def described(url: str) -> Any:
    """The description of the service, without what schemathesis 4.32 cannot read: arrays of different items.

    It turns ``prefixItems`` into the older ``items``, and then finds them invalid. ``tests/server/test_openapi.py``
    compares each answer with the whole schema.
    """

    def readable(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: readable(part) for name, part in value.items() if name != "prefixItems"}
        return [readable(part) for part in value] if isinstance(value, list) else value

    return readable(urllib3.request("GET", f"{url}api/v1/openapi.json").json())


async def do_not_wait(*_: object) -> bool:
    """Nobody waits for half a minute until something happens."""
    return False


def main() -> int:
    """The exit code: 1 if anything was found."""
    code, EventWatch.wait = 0, do_not_wait  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        for role in Role:
            server, place = TestServer(), Path(folder) / role
            with registry.connect(place / "catalog.db", create=True) as catalog:
                fill(catalog.backend, "digits")
                server.service.catalog = catalog.backend  # type: ignore[assignment]  # it is in SQLite
                data = DataDirectory(recorded="data", place=str(place / "data"))
                server.service.data = ServedData(LocalStore(data.place), data, server.url)
                document = place / "openapi.json"
                document.write_text(json.dumps(described(server.url)))
                program = Path(sys.executable).with_name("schemathesis")
                login = f"Authorization: Bearer {make_token(catalog.backend, 'ann', role)}"
                print(f"\n== {role}", flush=True)  # noqa: T201
                command = [str(program), "run", str(document), "--url", server.url, "-H", login]
                command += ["--phases", PHASES.get(role, "fuzzing"), "--max-examples", EXAMPLES, "--seed", SEED]
                command += ["--exclude-checks", LEFT_OUT, "--warnings", "off", "--no-color", "--no-shrink"]
                code |= subprocess.run(command, check=False, cwd=folder).returncode
                server.stop()
    return code


if __name__ == "__main__":
    sys.exit(main())
