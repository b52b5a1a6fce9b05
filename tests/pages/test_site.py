"""A site is the pages of a catalog as files: every link works, and only what changed is written."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from support import warm_python
from support.clouds import Cloud
from support.s3_server import S3Server
from support.site_checks import broken_links, follow, get_url, tree_of, without_time
from support.web_server import serve

import registry
from registry.catalog.site_index import parse_site_index
from registry.cli.main import run
from registry.errors import ConflictError, DatasetNotFoundError, UsageError
from registry.features import ClassLabel, FeaturesDict, Image, Text
from registry.pages import SiteOptions, Visit, write_site
from registry.pages.rendering import catalog_name
from registry.pages.site import _private
from registry.pages.site_files import LOCK, Placed, place_files
from registry.pins.keys import load_public_key, new_key
from registry.pins.signature import verify_index
from registry.storage import open_store

XSS = "</script><script>alert(1)</script>\"'`--><svg onload=alert(1)>"


class Hostile(registry.DatasetBuilder):
    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": XSS}

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "x.html": Text(),
                "index.html": Text(),
                "..": Text(),
                "pic?#%": Image(shape=(2, 2, 3)),
                "a b": ClassLabel(names=[XSS]),
            }
        )

    def splits(self) -> Any:
        picture = np.zeros((2, 2, 3), np.uint8)
        row = {"x.html": XSS, "index.html": XSS, "..": "", "a b": 0, "pic?#%": picture}
        return {name: [(i, row) for i in range(3)] for name in ("train", "Train")}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog and its data, to be copied."""
    folder = tmp_path_factory.mktemp("published")
    with registry.connect(folder / "our catalog.db", create=True) as catalog:
        for number in range(3):
            table = folder / "rows.csv"
            table.write_text("label,text\n" + "".join(f"{i % 2},row {i}\n" for i in range(4 + number)))
            catalog.add(table, name="plain")
        catalog.build(Hostile)
        with pytest.warns(UserWarning, match="licence"):
            catalog.describe("hostile:1.0.0", description=XSS, tags=[XSS], license=XSS, citation=XSS)
    return folder


@pytest.fixture
def catalog(published: Path, tmp_path: Path) -> Iterator[registry.Catalog]:
    shutil.copytree(published, tmp_path / "secret place")
    with registry.connect(tmp_path / "secret place" / "our catalog.db") as catalog:
        yield catalog


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_every_link_leads_to_a_file(catalog: registry.Catalog, tmp_path: Path) -> None:
    report = write_site(catalog, tmp_path / "site")
    assert broken_links(tmp_path / "site") == []
    assert report.num_pages == len(list((tmp_path / "site").rglob("index.html"))) > 10
    assert report.num_files == len({name.casefold() for name in tree_of(tmp_path / "site")})  # disks may ignore case
    assert {page.partition("/")[0] for page, _ in report.problems} <= {"log", "pins", "health", "datasets"}
    with serve(tmp_path) as url:
        reached = follow(f"{url}/site/index.html", get_url)
    assert f"{url}/site/datasets/plain/3.0.0/index.html" in reached
    assert f"{url}/site/datasets/hostile/1.0.0/index.json" in reached
    assert {it for url, it in reached.items() if "/media/" in url} == {"image/png"}
    html = {url for url, content_type in reached.items() if content_type.startswith("text/html")}
    assert {url.rpartition("/")[2] for url in html} == {"index.html"}  # no text of a record is a page


def test_pages_link_below_a_prefix_and_name_their_address(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.describe(
        "plain:3.0.0", description="# Plain\n\nMade **by** [us](https://example.org)\n\n| a |\n|---|\n| 1 |"
    )
    write_site(catalog, tmp_path / "site", SiteOptions(base_url="https://example.org/a/b", with_data=True))
    page = (tmp_path / "site" / "datasets" / "plain" / "3.0.0" / "index.html").read_text()
    assert '<link rel="canonical" href="https://example.org/a/b/datasets/plain/3.0.0/index.html">' in page
    assert "registry.connect(&#34;https://example.org/a/b/&#34;)" in page
    site_map = (tmp_path / "site" / "sitemap.xml").read_text()
    assert "<loc>https://example.org/a/b/datasets/plain/index.html</loc>" in site_map
    assert "/records/" not in site_map
    assert not (tmp_path / "site" / "robots.txt").exists()  # only the one of the host is read
    assert 'href="https://example.org/a/b/static/style.css"' in (tmp_path / "site" / "404.html").read_text()
    document = json.loads(page.partition('ld+json">')[2].partition("</script>")[0])
    url = document["distribution"][0]["contentUrl"]
    assert url.startswith("https://example.org/a/b/data/plain/3.0.0/")
    assert (tmp_path / "site" / url.removeprefix("https://example.org/a/b/")).is_file()
    assert (
        "- [plain](https://example.org/a/b/datasets/plain/index.json): 6 records. Made by us\n"
        in (tmp_path / "site" / "llms.txt").read_text()
    )


def test_a_second_run_writes_nothing(catalog: registry.Catalog, tmp_path: Path) -> None:
    first = write_site(catalog, tmp_path / "site")
    before = stamps(tmp_path / "site")
    second = write_site(catalog, tmp_path / "site")
    assert stamps(tmp_path / "site") == before
    assert (second.written, second.removed, second.unchanged) == (0, 0, first.num_files)
    assert second.index == first.index
    forced = write_site(catalog, tmp_path / "site", force=True)  # everything is made again, and is the same
    assert forced.written == forced.num_files
    assert forced.index == first.index


def test_a_change_rewrites_the_pages_of_its_dataset(catalog: registry.Catalog, tmp_path: Path) -> None:
    write_site(catalog, tmp_path / "site")
    before, tree = stamps(tmp_path / "site"), tree_of(tmp_path / "site")
    catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
    report = write_site(catalog, tmp_path / "site")
    after = stamps(tmp_path / "site")
    changed = {
        Path(name).relative_to(tmp_path / "site").as_posix() for name in after if before.get(name) != after[name]
    }
    assert report.written == len(changed - {"site-files.json"})
    assert not [name for name in changed if name.startswith(("datasets/hostile", "static", "404"))]
    assert {"site.json", "catalog.db", "datasets/plain/1.0.0/index.html"} <= changed
    assert "wrong labels" in (tmp_path / "site" / "datasets" / "plain" / "1.0.0" / "index.html").read_text()
    snapshots = [name for name in tree_of(tmp_path / "site") if name.startswith("catalog/")]
    assert len(snapshots) == 2  # readers of the index that was replaced still get theirs
    catalog.lifecycle.yank("plain:2.0.0", reason="wrong labels")
    assert write_site(catalog, tmp_path / "site").removed == 1
    assert broken_links(tmp_path / "site") == []
    assert not [name for name in tree if name.startswith("catalog/") and (tmp_path / "site" / name).exists()]


def test_pages_of_what_is_no_longer_chosen_are_removed(catalog: registry.Catalog, tmp_path: Path) -> None:
    write_site(catalog, tmp_path / "site")
    with pytest.raises(ConflictError, match=f"does not continue the log of the site {tmp_path / 'site'}/?: "):
        write_site(catalog, tmp_path / "site", SiteOptions(datasets=("plain",)))
    write_site(catalog, tmp_path / "site", SiteOptions(datasets=("plain",)), new_log=True)
    write_site(catalog, tmp_path / "other", SiteOptions(datasets=("plain",)))
    left = {name: it for name, it in tree_of(tmp_path / "site").items() if not name.startswith("catalog/")}
    assert without_time(left).keys() == {it for it in tree_of(tmp_path / "other") if not it.startswith("catalog/")}
    assert not (tmp_path / "site" / "datasets" / "hostile").exists()
    assert b"hostile" not in b"".join(left.values())
    with pytest.raises(DatasetNotFoundError):
        write_site(catalog, tmp_path / "no", SiteOptions(datasets=("nothing",)))


def test_files_of_others_stay(catalog: registry.Catalog, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / ".git").mkdir(parents=True)
    others = {".git/config": "mine", "CNAME": "example.org", "datasets/notes.txt": "mine", "llms.txt": "mine"}
    for name, text in others.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    with pytest.raises(ConflictError, match="contains files, but is not a site"):
        write_site(catalog, site)
    others.pop("llms.txt")
    (site / "llms.txt").unlink()
    write_site(catalog, site, force=True)
    (site / "robots.txt").write_text("mine")
    report = write_site(catalog, site, SiteOptions(base_url="https://example.org/"))
    assert "robots.txt is not a file of the site, and was not changed" in report.notes
    catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
    write_site(catalog, site, SiteOptions(datasets=("hostile",)), new_log=True)
    for name, text in (others | {"robots.txt": "mine"}).items():
        assert (site / name).read_text() == text


def test_nothing_private_is_in_a_site(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
    write_site(catalog, tmp_path / "site", SiteOptions(with_data=True, base_url="https://example.org/"))
    content = b"".join(tree_of(tmp_path / "site").values()) + (tmp_path / "site" / "site-files.json").read_bytes()
    for private in (
        str(tmp_path),
        "secret place",
        str(Path.home()),
        f"{getpass.getuser()}@",
        f"@{socket.gethostname()}" * (len(socket.gethostname()) > 4) or "no such host",  # compressed bytes have "@vm"
    ):
        assert private.encode() not in content


@pytest.mark.parametrize("place", ["/srv/data", "/srv/my data"])
def test_paths_of_this_machine_are_replaced_and_addresses_stay(place: str) -> None:
    pattern = _private(place, "s3://bucket/srv/data", "/data")
    texts = {
        f"cannot read {place}/x": "cannot read …/x",
        f'"file://{quote(place)}/x"': '"file://…/x"',
        f"https://example.org{place}/x": f"https://example.org{place}/x",
        "s3://bucket/srv/data/x": "s3://bucket/srv/data/x",
        "/data/x": "/data/x",
    }
    assert {text: re.sub(pattern, "…", text) for text in texts} == texts


def test_what_could_not_be_read_is_said_without_paths_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n2,y\n")
    with registry.connect(tmp_path / "o'brien & co" / "catalog.db", create=True) as catalog:
        catalog.add(tmp_path / "rows.csv", name="plain")
        (shard,) = Path(catalog.data_dir).rglob("*.tfrecord*")
        shard.rename(tmp_path / "kept")
        failed = write_site(catalog, tmp_path / "site")
        assert "datasets/plain/1.0.0/records/train/0" in dict(failed.problems)
        content = b"".join(tree_of(tmp_path / "site").values())
        assert b"brien" not in content
        assert b"could not be created" in content
        assert write_site(catalog, tmp_path / "site").problems == failed.problems
        (tmp_path / "kept").rename(shard)
        assert write_site(catalog, tmp_path / "site").problems == ()
        write_site(catalog, tmp_path / "fresh")
    assert without_time(tree_of(tmp_path / "site")) == without_time(tree_of(tmp_path / "fresh"))


def test_a_site_does_not_say_that_an_imported_version_was_added(tmp_path: Path) -> None:
    """Its catalog has no producers, and the metadata of an addition are also in what was imported or copied later."""
    with registry.connect(tmp_path / "first" / "catalog.db", create=True) as first:
        first.add({"a": [1]}, name="plain")
        folder = first.dataset("plain").local_folder
        with registry.connect(tmp_path / "second" / "catalog.db", create=True) as catalog:
            catalog.import_tfds(str(folder))
            first.add({"a": [2]}, name="other")
            first.copy("other", catalog)
            write_site(catalog, tmp_path / "site")
    files = tree_of(tmp_path / "site")
    origins = [json.loads(files[f"datasets/{name}/1.0.0/index.json"])["data"]["origin"] for name in ("plain", "other")]
    assert origins == ["", "a copy from another catalog"]


def test_every_page_that_could_not_be_created_is_reported(tmp_path: Path) -> None:
    """Also the second of two addresses that show the same records."""
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.add({"a": [1]}, name="plain")
        (shard,) = Path(str(catalog.dataset("plain").local_folder)).glob("*train*")
        shard.write_bytes(b"damaged")
        report = write_site(catalog, tmp_path / "site")
    place = "datasets/plain/1.0.0/records"
    assert {page for page, _ in report.problems} == {place, f"{place}/train", f"{place}/train/0"}


def test_versions_outside_of_the_data_directory_have_pages_of_records_without_their_places(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n2,unmistakable\n")
    with registry.connect(tmp_path / "first" / "catalog.db", create=True) as first:
        first.add(tmp_path / "rows.csv", name="plain")
        folder = first.dataset("plain").local_folder
    assert folder is not None
    with registry.connect(tmp_path / "second" / "catalog.db", create=True) as catalog:
        catalog.import_tfds(folder)
        assert catalog.dataset("plain").facts.locations == (folder,)
        report = write_site(catalog, tmp_path / "site")
    assert report.problems == ()
    files = tree_of(tmp_path / "site")
    assert b"unmistakable" in files["datasets/plain/1.0.0/records/index.html"]
    assert str(tmp_path).encode() not in b"".join(files.values())


def test_no_digest_of_a_site_depends_on_a_path(catalog: registry.Catalog, tmp_path: Path) -> None:
    write_site(catalog, tmp_path / "site")
    shutil.copytree(tmp_path / "secret place", tmp_path / "other")
    with registry.connect(tmp_path / "other" / "our catalog.db") as other:
        write_site(other, tmp_path / "second")
    keys = []
    for site in ("site", "second"):
        document = json.loads((tmp_path / site / "site-files.json").read_bytes())
        keys.append([document["key"], *(group["key"] for group in document["groups"].values())])
    assert keys[0] == keys[1]
    assert keys[0][0]


@pytest.mark.parametrize("home", ["/", "/datasets"])
def test_a_short_home_folder_changes_no_link(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    write_site(catalog, tmp_path / "site")
    assert broken_links(tmp_path / "site") == []
    assert 'href="../../../log/index.html"' in (tmp_path / "site/datasets/plain/3.0.0/index.html").read_text()


def test_the_name_of_a_catalog_has_no_user_and_no_host() -> None:
    for url, name in (
        ("postgresql://ann@db.internal:5432", "catalog"),
        ("postgresql://ann@db.internal?sslmode=require", "catalog"),
        ("postgresql://ann@db.internal/science?host=%2Fhome%2Fann", "science"),
        ("https://data.example.org/catalog/", "catalog"),
    ):
        catalog: Any = SimpleNamespace(url=url, backend=SimpleNamespace(file=None))
        assert catalog_name(Visit(catalog=catalog)) == name


def test_names_of_people_are_only_in_a_site_that_should_have_them(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_ACTOR", "Zoe Example")
    catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
    write_site(catalog, tmp_path / "site")
    write_site(catalog, tmp_path / "named", SiteOptions(with_actors=True))
    tree = tree_of(tmp_path / "site")
    assert b"Zoe Example" not in b"".join(tree.values())
    pages = [text for name, text in tree.items() if name.endswith(".html")]
    assert len(pages) > 10
    assert b"by anonymous" not in b"".join(pages)
    assert "Zoe Example" in (tmp_path / "named" / "datasets" / "plain" / "index.html").read_text()


def test_files_that_were_lost_are_written_again(catalog: registry.Catalog, tmp_path: Path) -> None:
    write_site(catalog, tmp_path / "site")
    tree = tree_of(tmp_path / "site")
    (tmp_path / "site" / "datasets" / "plain" / "index.html").unlink()
    (tmp_path / "site" / "static" / "style.css").write_text("")
    assert write_site(catalog, tmp_path / "site").written == 2
    assert tree_of(tmp_path / "site") == tree


def test_a_dry_run_writes_nothing(catalog: registry.Catalog, tmp_path: Path) -> None:
    report = write_site(catalog, tmp_path / "site", dry_run=True)
    assert not (tmp_path / "site").exists()
    assert report.written == report.num_files > 10
    write_site(catalog, tmp_path / "site")
    before = stamps(tmp_path / "site")
    catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
    assert 0 < write_site(catalog, tmp_path / "site", dry_run=True).written < report.written
    assert stamps(tmp_path / "site") == before


def test_a_site_with_data_has_every_file(catalog: registry.Catalog, tmp_path: Path) -> None:
    report = write_site(catalog, tmp_path / "site", SiteOptions(with_data=True))
    assert (report.written, report.unchanged) == (report.num_files, 0)
    assert report.written_bytes == report.num_bytes > len(tree_of(tmp_path / "site" / "data")) > 0
    assert report.index.data_url == "data/"
    assert not report.problems or {message for _, message in report.problems}
    with registry.connect(tmp_path / "site" / "catalog.db", data_dir=tmp_path / "site" / "data") as other:
        for reference in ("plain:3.0.0", "plain:1.0.0", "hostile:1.0.0"):
            ours = list(catalog.dataset(reference).read("train").records())
            assert list(other.dataset(reference).read("train").records()) == ours
    before = stamps(tmp_path / "site" / "data")
    catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
    report = write_site(catalog, tmp_path / "site", SiteOptions(with_data=True))
    assert stamps(tmp_path / "site" / "data") == before
    assert report.unchanged >= len(before)


def test_a_site_in_a_bucket(
    catalog: registry.Catalog, tmp_path: Path, cloud: Cloud, bucket: str, s3_server: S3Server
) -> None:
    write_site(catalog, tmp_path / "site")
    report = write_site(catalog, f"{bucket}/a/site")
    here = f"/{bucket.removeprefix('s3://')}/a/site/"
    for name, content in without_time(tree_of(tmp_path / "site")).items():
        if name != "site.json":
            status, answer = s3_server.request("GET", here + name.replace("%", "%25"))
            assert (status, answer) == (200, content), name
    assert report.written == report.num_files
    assert write_site(catalog, f"{bucket}/a/site").written == 0
    catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
    assert 0 < write_site(catalog, f"{bucket}/a/site").written < report.written


def test_one_run_at_a_time_writes_to_a_bucket(
    catalog: registry.Catalog, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def come_second(*args: Any, **options: Any) -> Placed:
        with monkeypatch.context() as inner:
            inner.setattr("registry.pages.site.place_files", place_files)
            write_site(catalog, bucket)
        return place_files(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr("registry.pages.site.place_files", come_second)
        with pytest.raises(ConflictError, match=f"another run wrote to {bucket}/? since this run began"):
            write_site(catalog, bucket)
    assert write_site(catalog, bucket).written == 0
    store, now = open_store(bucket), datetime.now(UTC)
    assert not store.exists(LOCK)

    store.write_bytes(LOCK, now.isoformat().encode())  # of a run that is writing
    files = store.list()
    catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
    with pytest.raises(ConflictError, match=f"another run has been writing to {bucket}/? since {now:%H:%M} UTC"):
        write_site(catalog, bucket)
    assert store.list() == files
    store.write_bytes(LOCK, (now - timedelta(hours=2)).isoformat().encode(), overwrite=True)  # of one that was killed
    assert write_site(catalog, bucket).written > 0
    assert not store.exists(LOCK)


@pytest.mark.parametrize("step", [1, pytest.param(12, marks=pytest.mark.long)])
def test_a_killed_run_leaves_a_whole_site(catalog: registry.Catalog, tmp_path: Path, step: int) -> None:
    catalog.close()
    script = Path(__file__).parents[1] / "support" / "killed_sites.py"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, str(script), catalog.backend.url, str(tmp_path), str(step)]
    result = warm_python.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) > 5
    assert {row["state"] for row in rows} == {"old", "new"}


def test_two_runs_at_once_end_with_a_whole_site(catalog: registry.Catalog, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "registry", "site", str(tmp_path / "site"), "--catalog", catalog.url]
    runs = [warm_python.Popen([*command, "--format", "json"], stdout=subprocess.PIPE) for _ in range(2)]
    results = [json.loads(run.communicate()[0])["data"] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted(it["written"] for it in results) == [0, results[0]["num_files"]]  # the second one waits
    assert broken_links(tmp_path / "site") == []


def test_the_command_says_what_it_wrote(
    catalog: registry.Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, key = tmp_path / "site", tmp_path / "site.key"
    new_key(key)
    assert run(["site", str(site), "--catalog", catalog.url, "--sign", str(key), "--versions", "3"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"wrote {site}: ")
    assert " files written (" in said.out
    note = (
        "readers of the site cannot find the records, because the place of the data is unknown: "
        "--with-data or --data-url URL"
    )
    assert said.err == f"note: {note}\n"
    assert verify_index(parse_site_index((site / "site.json").read_bytes()), [load_public_key(f"{key}.pub")])
    assert (site / "datasets" / "plain" / "1.0.0" / "records" / "train" / "index.html").is_file()
    assert run(["site", str(tmp_path), "--catalog", catalog.url]) == 4
    assert "contains files, but is not a site" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["example.org", "ftp://example.org/", "https://a:b@example.org/", 'https://a/"x'])
def test_addresses_are_checked(catalog: registry.Catalog, tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError):
        write_site(catalog, tmp_path / "site", SiteOptions(base_url=url))
    assert tree_of(tmp_path / "site") == {}
