"""docs/object-stores.md: its example works, its policies allow what is needed and no more, its costs are counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from end_to_end.test_documents import ROOT, blocks, check_console, run, variables
from support.fault_proxy import FaultProxy, Request
from support.prepared_samples import animals, prepare
from support.s3_server import S3Server

import registry
from registry.api import Catalog
from registry.errors import StorageError
from registry.storage import open_store

PAGE = ROOT / "docs/object-stores.md"
TEXT = PAGE.read_text(encoding="utf-8")
SHARD = "animals-train.tfrecord-00000-of-00002"


@pytest.fixture
def example(s3_server: S3Server, bucket: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a newcomer, with the bucket of the page."""
    s3_server.create_bucket("my-datasets")
    yield variables(tmp_path) | {"REGISTRY_DATA_DIR": "s3://my-datasets"}
    for name in open_store("s3://my-datasets").list():
        open_store("s3://my-datasets").remove(name)
    assert s3_server.request("DELETE", "/my-datasets")[0] == 204


def test_the_example_prints_what_it_says(example: dict[str, str], tmp_path: Path) -> None:
    check_console("docs/object-stores.md", 2, example, tmp_path)
    (python,) = blocks("python", "docs/object-stores.md")
    (tmp_path / "example.py").write_text(python)
    assert run("python example.py", example, tmp_path) == blocks("text", "docs/object-stores.md")[0]


def test_the_rule_for_unfinished_uploads_is_accepted(s3_server: S3Server, bucket: str) -> None:
    import boto3

    (rule,) = (text for text in blocks("json", "docs/object-stores.md") if "Rules" in text)
    client = boto3.client("s3", endpoint_url=s3_server.url)
    name = bucket.removeprefix("s3://")
    client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration=json.loads(rule))
    (found,) = client.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    assert found["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}


def policies() -> list[set[str]]:
    """The actions that the page allows to readers and to publishers."""
    listed = [json.loads(text) for text in blocks("json", "docs/object-stores.md") if "Statement" in text]
    actions = [[statement["Action"] for statement in policy["Statement"]] for policy in listed]
    return [{one for action in of for one in ([action] if isinstance(action, str) else action)} for of in actions]


def action_of(request: Request) -> str:
    """The permission that S3 asks for."""
    if request.method in ("GET", "HEAD"):
        return "s3:GetObject" if request.key else "s3:ListBucket"
    if request.method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId=" in request.query else "s3:DeleteObject"
    return "s3:DeleteObject" if request.query.startswith("delete") else "s3:PutObject"


def test_readers_and_publishers_need_exactly_what_their_policies_allow(
    fault_proxy: FaultProxy, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, publishers = policies()
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    rows = animals(20, name="x" * 9_000_000)  # a shard that is uploaded in parts
    folder = prepare(tmp_path / "animals", splits={"train": rows}, shards=2)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        fault_proxy.inject("error", when=lambda request: "partNumber=2" in request.query)
        with pytest.raises(StorageError):
            catalog.publish(folder)
        allowed = {action_of(request) for request in fault_proxy.requests}
        fault_proxy.reset()
        assert catalog.publish(folder).newly
        place = open_store(f"{bucket}/animals/1.0.0")
        place.write_bytes(SHARD, b"damaged", overwrite=True)
        assert not catalog.publish(folder).newly  # repairs it
        allowed |= {action_of(request) for request in fault_proxy.requests}
        assert allowed == publishers

        fault_proxy.reset()
        assert len(list(catalog.dataset("animals").read("train"))) == 20
        catalog.dataset("animals").verify(deep=True).raise_for_faults("animals")
        place.remove(SHARD)
        fault_proxy.reset()
        with pytest.raises(StorageError):
            place.open(SHARD)
        list(catalog.dataset("animals").read("train[15:]"))
        assert {action_of(request) for request in fault_proxy.requests} == readers


def kind_of(request: Request) -> str:
    """The column of the table of costs."""
    if request.method == "DELETE" or request.query.startswith("delete"):
        return "deletes"
    is_read = request.method in ("GET", "HEAD") and "list-type" not in request.query
    return "reads" if is_read else "writes"


@contextmanager
def counted(proxy: FaultProxy, what: str, rows: list[tuple[str, ...]]) -> Iterator[None]:
    """Add a row of the table: what was done, and the requests of each kind."""
    proxy.reset()
    yield
    kinds = [kind_of(request) for request in proxy.requests]
    rows.append((what, *(str(kinds.count(kind)) for kind in ("writes", "reads", "deletes"))))


@pytest.mark.long
def test_the_costs_are_those_of_the_page(
    fault_proxy: FaultProxy, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "60")  # no request is sent twice on a busy machine
    noise = np.random.default_rng(0)
    small, large = tmp_path / "small", tmp_path / "large"
    found: list[tuple[str, ...]] = []

    def new_cache() -> None:
        monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / f"cache{len(found)}"))
        monkeypatch.setenv("REGISTRY_CACHE_BYTES", "500MB")

    def connect() -> Catalog:
        return registry.connect(tmp_path / "catalog.db", data_dir=bucket)

    prepare(small, splits={"train": animals(200)}, shards=4)
    big = [{**one, "name": noise.bytes(1_000_000).hex()[:1_000_000]} for one in animals(80)]
    prepare(large, "2.0.0", splits={"train": big}, shards=2)
    with connect() as catalog, counted(fault_proxy, "publish 4 shards of 5 kB", found):
        catalog.publish(small)
    with connect() as catalog, counted(fault_proxy, "publish 2 shards of 40 MB", found):
        catalog.publish(large)
    ways: dict[str, Callable[[Any], object]] = {
        "read the first record": lambda dataset: next(iter(dataset.read("train"))),
        "read all 80 records": lambda dataset: sum(1 for _ in dataset.read("train")),
        "read 8 records at random": lambda dataset: dataset.read("train")[[3, 11, 25, 38, 44, 57, 63, 79]],
        "`registry verify`": lambda dataset: dataset.verify().raise_for_faults("animals"),
    }
    for what, way in ways.items():
        new_cache()
        with connect() as catalog, counted(fault_proxy, what, found):
            way(catalog.dataset("animals:2.0.0"))
    with connect() as catalog:
        new_cache()
        list(catalog.dataset("animals:2.0.0").read("train"))
        with counted(fault_proxy, "read all of them again, from the cache", found):
            list(catalog.dataset("animals:2.0.0").read("train"))
    listed = re.findall(
        r"^\| (publish .*|read .*|`registry .*`) \| (\d+) \| (\d+) \| (\d+) \|$", TEXT, flags=re.MULTILINE
    )
    assert listed == found, "\n" + "\n".join(f"| {' | '.join(row)} |" for row in found)
