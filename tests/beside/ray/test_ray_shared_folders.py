"""Whether a folder is shared by all nodes of a cluster in which one node has its own disk at the path of the folder.

The node is in a mount namespace, in which another folder is mounted over the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.ray_clusters import wait_until

from registry.engines.ray import connection as ray_connection
from registry.engines.ray.tasks import RayTasks

UNSHARE = ["unshare", "--mount", "--map-root-user"]

pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode,
    reason="this system allows no mount namespaces",
)


class Folders:
    """A folder that all nodes see, and one at whose path a node has its own, with the same files."""

    def __init__(self, root: Path) -> None:
        self.root, self.shared, self.hidden, self.own = root, root / "shared", root / "hidden", root / "own"
        for folder in (self.shared, self.hidden):
            folder.mkdir()
            (folder / "shard").write_text("same")

    def left(self) -> list[str]:
        """All files in the folders."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())


@contextmanager
def node_with_its_own_disk(cluster: Any, ray: Any, folders: Folders) -> Iterator[None]:
    """Add a node for the length of the block."""
    names = {node["NodeID"] for node in ray.nodes()}
    program = (
        f"mount --bind {folders.own} {folders.hidden} && "
        f"exec {sys.executable} -m ray.scripts.scripts start --address {cluster.address} --num-cpus 1 --block"
    )
    node = subprocess.Popen([*UNSHARE, "sh", "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def new_nodes() -> list[str]:
        return [one["NodeID"] for one in ray.nodes() if one["Alive"] and one["NodeID"] not in names]

    try:
        wait_until(lambda: bool(new_nodes()) or node.poll() is not None, "a node joins the cluster")
        assert node.poll() is None, "the node ended"
        yield
    finally:
        node.terminate()
        node.wait()
        wait_until(lambda: not new_nodes(), "the node leaves the cluster")


@pytest.fixture(scope="module")
def folders(session_cluster: Any, connected: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folders]:
    found = Folders(tmp_path_factory.mktemp("folders"))
    shutil.copytree(found.hidden, found.own)
    with node_with_its_own_disk(session_cluster, connected, found):
        yield found


@pytest.fixture
def engine(folders: Folders) -> Iterator[RayTasks]:
    with RayTasks() as made:
        yield made


def test_a_folder_of_the_same_name_and_content_on_the_disk_of_a_node_is_not_shared(
    engine: RayTasks, folders: Folders
) -> None:
    before = folders.left()
    assert engine.can_read(str(folders.shared))
    assert not engine.can_read(str(folders.hidden))
    assert folders.left() == before, "no marker is left"


def test_entries_are_compared_in_a_folder_that_cannot_be_written_to(
    engine: RayTasks, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(ray_connection.Path, "touch", refuse)
    assert engine.can_read(str(folders.shared))
    os.utime(folders.hidden / "shard", ns=(0, 1))
    assert not engine.can_read(str(folders.hidden))


def test_a_missing_folder_is_not_shared(engine: RayTasks, folders: Folders) -> None:
    assert not engine.can_read(str(folders.root / "missing"))


def test_a_node_with_the_name_of_this_machine_is_asked(engine: RayTasks, folders: Folders, connected: Any) -> None:
    assert len({node["NodeManagerHostname"] for node in connected.nodes()}) == 1
    assert not engine.can_read(f"file://{folders.hidden}")
