"""Tries every fault at every request of a copy from one catalog to another, in one bucket. Run by hand:

python tests/support/copy_matrix.py [EVERY [STORE [disk]]]     prints a report

EVERY is 1 for each request (the default), 5 for each fifth; STORE is s3 (the default), gs or az. With ``disk``, the
target is a folder of this machine.

Each case copies a version, whose files are in the bucket, to another data directory there, through a proxy that injects
one fault, as in ``publish_matrix.py``; also a SIGKILL before and after each request. Then, without faults, another
run of the same copy must finish, and a reader must find every record. ``test_copy_matrix.py`` tries a few.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # pytest finds these by itself
    sys.path.append(str(Path(__file__).parents[1]))

import registry
from registry.errors import RegistryError
from support.fault_proxy import FaultProxy
from support.object_publishers import publish
from support.publish_matrix import Matrix, behind_proxy, prepare_folder, report_on


class CopyMatrix(Matrix):
    """Cases of a copy of animals:1.0.0, which is published in the bucket."""

    def __init__(self, proxy: FaultProxy, bucket: str, folder: Path, catalogs: Path, *, to_disk: bool = False) -> None:
        self._to_disk = to_disk
        self._source = str(catalogs / "source.db"), f"{bucket}/source"
        assert publish(*self._source, str(folder))["newly"]
        with registry.connect(self._source[0], data_dir=self._source[1]) as catalog:
            catalog.aliases.set("paper", "animals")
        super().__init__(proxy, bucket, folder, catalogs)

    def _fresh(self, name: str) -> tuple[str, str]:
        url, data_dir = super()._fresh(name)
        return url, str(self._catalogs / f"{name}-data") if self._to_disk else data_dir

    def act(self, url: str, data_dir: str) -> dict[str, Any]:
        """Copy the version, and compare the logs; the outcome of ``publish`` without notes."""
        try:
            with (
                registry.connect(self._source[0], data_dir=self._source[1]) as source,
                registry.connect(url, data_dir=data_dir) as target,
            ):
                (copied,) = source.copy("animals", target)
                target.verify_log().require_sound()
                if copied.error is not None:
                    raise copied.error
                actions = [event.action for event in target.log()]
                # Unreadable attachments are reported, and attached by the next run.
                assert actions[:5] == ["data-dir", "publish", "imported", "imported", "alias-set"], actions
                assert actions[5:] in ([], ["attach"]), actions
                attached = [one.dataset("animals").attachments for one in (source, target)]
                assert copied.notes or (attached[0] and attached[0] == attached[1]), attached
                assert target.standing("animals").aliases == source.standing("animals").aliases
                return {"newly": copied.outcome == "copied", "notes": []}
        except RegistryError as error:
            return {"error": error.code, "exit_code": error.exit_code, "message": error.message, "hint": error.hint}
        except BaseException as error:  # noqa: BLE001 (the test wants to see it)
            return {"error": "untyped", "message": f"{type(error).__name__}: {error}"}


def main(every: str = "1", scheme: str = "s3", target: str = "bucket") -> int:
    """Try the whole matrix."""
    with behind_proxy(scheme) as (proxy, bucket, folder):
        (folder / "catalogs").mkdir()
        prepared, catalogs = prepare_folder(folder / "98"), folder / "catalogs"
        matrix = CopyMatrix(proxy, bucket, prepared, catalogs, to_disk=target == "disk")
        return report_on(matrix.num_requests, matrix.cases(int(every)), matrix.problems, matrix.seen)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
