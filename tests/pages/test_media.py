"""Files of records: stored bytes under their own name, and small pictures of images and arrays."""

from __future__ import annotations

import io
import re
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import registry
from registry.errors import MirrorWarning
from registry.images import decode_picture, read_picture
from registry.pages import Media, Page, Visit, act, answer, render
from registry.pages.cells import STORED_ORDER

GALLERY = ("datasets", "gallery", "1.0.0")


def media_of(catalog: registry.Catalog, *rest: Any) -> Media:
    media = answer(Visit(catalog=catalog, path=(*GALLERY, "media", "train", *map(str, rest))))
    assert isinstance(media, Media)
    return media


def pixels_of(media: Media) -> Any:
    assert media.content_type == "image/png"
    return decode_picture(read_picture(media.content), channels=None, wide=False)


def test_files_are_the_stored_bytes(gallery: registry.Catalog) -> None:
    row = gallery.dataset("gallery").read("train", STORED_ORDER).files_as_bytes()[3]
    assert media_of(gallery, 3, "image", "file.png").content == row["image"]
    assert media_of(gallery, 3, "clip", 2, "file.png").content == row["clip"][2]
    sound = media_of(gallery, 3, "sound", "file.wav")
    assert (sound.content, sound.content_type) == (row["sound"], "audio/wav")


def test_arrays_become_pictures_and_samples_sounds(gallery: registry.Catalog) -> None:
    row = gallery.dataset("gallery").read("train", STORED_ORDER)[3]
    heat = pixels_of(media_of(gallery, 3, "heat", "file.png"))
    assert heat.shape[:2] == (5, 7)
    assert heat[..., 0].argmax() == row["heat"].argmax()
    with wave.open(io.BytesIO(media_of(gallery, 3, "samples", "file.wav").content)) as file:
        assert file.getframerate() == 8000
        assert np.frombuffer(file.readframes(400), "<i2").tolist() == row["samples"].tolist()


def test_small_pictures_show_images_and_the_classes_of_masks(gallery: registry.Catalog) -> None:
    row = gallery.dataset("gallery").read("train", STORED_ORDER)[3]
    assert np.array_equal(pixels_of(media_of(gallery, 3, "image", "small.png")), row["image"])
    mask = pixels_of(media_of(gallery, 3, "mask", "small.png"))
    assert np.array_equal(mask[..., 3] == 0, row["mask"][..., 0] == 0)
    assert np.unique(mask[mask[..., 3] > 0], axis=0).shape == (1, 4)


def test_other_addresses_are_not_found(gallery: registry.Catalog) -> None:
    for address in (
        *("120/image/file.png", "x/image/file.png", "3/image/file.jpg", "3/image/0/file.png", "3/clip/file.png"),
        *("3/clip/3/file.png", "3/clip/-1/file.png", "3/nothing/file.png", "3/label/small.png", "3", ""),
    ):
        with pytest.raises(registry.errors.NotFoundError):
            media_of(gallery, *filter(None, address.split("/")))


class Plain(registry.DatasetBuilder):
    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": "First"}

    def features(self) -> registry.features.FeaturesDict:
        return registry.features.FeaturesDict({"n": registry.features.Scalar("int64"), "s": registry.features.Text()})

    def splits(self) -> Any:
        return {"train": [(i, {"n": i % 9, "s": f"text {i}"}) for i in range(60)]}


class OtherPlain(Plain):
    name = "plain"
    VERSION = "2.0.0"
    RELEASE_NOTES = {"2.0.0": "One other text"}

    def splits(self) -> Any:
        return {"train": [(i, {"n": i % 9, "s": f"text {i}" if i != 30 else "another"}) for i in range(60)]}


@pytest.fixture
def plain(tmp_path: Path) -> Any:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Plain)
        yield catalog


def records(catalog: registry.Catalog, *rest: str, **query: str) -> tuple[Page, str]:
    visit = Visit(catalog=catalog, path=("datasets", "plain", "1.0.0", "records", *rest), query=query)
    page = answer(visit)
    assert isinstance(page, Page)
    return page, render(page, visit)[0]


def shard_of(catalog: registry.Catalog) -> Path:
    (path,) = Path(catalog.dataset("plain").folder.removeprefix("file://")).glob("*.tfrecord*")
    return path


def test_one_damaged_record_is_words_in_its_row(plain: registry.Catalog) -> None:
    path = shard_of(plain)
    place = records(plain, "train", "7")[0].values["place"]
    content = bytearray(path.read_bytes())
    content[place["offset"] + 14] ^= 1
    path.write_bytes(content)
    page, html = records(plain, "train")
    assert page.status == 500
    assert page.values["problem"] or all(row["problem"] for row in page.values["rows"])
    assert "plain-train.tfrecord" in html
    page, html = records(plain, "train", "7")
    assert page.status == 500
    assert page.values["problem"]["message"].splitlines()[0] in html.replace("&#39;", "'")


def test_missing_files_are_words(plain: registry.Catalog) -> None:
    shard_of(plain).unlink()
    for rest in (("train",), ("train", "7")):
        page, html = records(plain, *rest)
        assert page.status >= 400
        assert page.values["problem"] or page.values["rows"][0]["problem"]
        assert "plain-train.tfrecord" in html


def test_a_button_keeps_the_columns_of_a_large_split(
    plain: registry.Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
    monkeypatch.setattr("registry.pages.selection.SMALL_BYTES", 0)
    expected = [i for i, row in enumerate(plain.dataset("plain").read("train", STORED_ORDER)) if row["n"] == 4]
    page, html = records(plain, where="n == 4")
    assert page.values["filling"]["columns"] == ["n"]
    assert '<form method="post"' in html
    assert not page.values["rows"]
    act(Visit(catalog=plain, path=("datasets", "plain", "1.0.0", "records"), query={"where": "n == 4"}))
    while (page := records(plain, where="n == 4")[0]).values["filling"] is not None:
        assert page.values["refresh"] == 2, page.values["filling"]["error"]
    assert [row["index"] for row in page.values["rows"]] == expected
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    query = {"where": "n == 4", "q": "text"}
    act(Visit(catalog=plain, path=("datasets", "plain", "1.0.0", "records"), query=query))
    page, html = records(plain, **query)
    assert "the cache is switched off" in html
    assert page.values["filling"]["columns"] == ["s"]


def test_a_record_that_changed_has_no_other_bytes_like_it(plain: registry.Catalog) -> None:
    plain.build(OtherPlain)
    texts = [[row["s"] for row in plain.dataset(f"plain:{v}").read("train", STORED_ORDER)] for v in ("1.0.0", "2.0.0")]
    changed = next(i for i in range(60) if texts[0][i] != texts[1][i])
    for index, word in ((changed, "no record with these bytes"), ((changed + 1) % 60, "the same record")):
        page, html = records(plain, "train", str(index))
        assert [(str(it["version"]), it["is_equal"]) for it in page.values["others"]] == [
            ("2.0.0", word == "the same record")
        ]
        assert word in html


def test_a_record_that_moved_or_changed_is_found_in_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(catalog: registry.Catalog, name: str, index: int, **options: Any) -> tuple[Any, str]:
        visit = Visit(catalog=catalog, path=("datasets", name, "1.0.0", "records", "train", str(index)), **options)
        page = answer(visit)
        assert isinstance(page, Page)
        (other,) = page.values["others"]
        words = " ".join(re.sub("<[^>]*>", " ", render(page, visit)[0]).split())
        return tuple(other[name] for name in ("index", "is_equal", "by")), words

    rows: list[dict[str, Any]] = [{"id": f"it's {i}", "n": i * 7} for i in range(30)]
    changed = [rows[9], *rows[:5], {**rows[6], "n": -1}]
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        for name, key in (("keyed", {"key": "id"}), ("plain", {"key_by": "content"})):
            catalog.add(rows, name, number="1.0.0", **key)
            catalog.add(changed, name, number="2.0.0", **key)
            ids = [
                [row["id"].decode() for row in catalog.dataset(f"{name}:{it}").read("train", STORED_ORDER)]
                for it in ("1.0.0", "2.0.0")
            ]
            same, other, gone = (ids[0].index(f"it's {number}") for number in (9, 6, 20))
            by = "key" if name == "keyed" else "digest"
            there = ids[1].index("it's 9")
            moved, words = found(catalog, name, same)
            assert moved == (there, True, "place" if there == same else by)
            assert f"2.0.0 the same record{' at the same place' if there == same else f', as record {there}'}" in words
            there = ids[1].index("it's 6")
            assert found(catalog, name, other)[0] == ((there, False, "key") if by == "key" else (None, False, "digest"))
            outcome, words = found(catalog, name, gone)
            assert outcome == (None, False, by)
            assert f"2.0.0 no record with {'this id' if by == 'key' else 'these bytes'}" in words
        monkeypatch.setattr("registry.pages.other_versions._AT_ONCE", 0)
        outcome, words = found(catalog, "plain", gone)
        assert outcome == (gone if gone < 7 else None, False, "place")
        assert "at this place; not searched for it Search" in words
        assert found(catalog, "plain", gone, query={"search": "1"})[0] == (None, False, "digest")
        assert "Search" not in found(catalog, "plain", gone, is_live=False)[1].partition("not searched")[2][:20]


def test_versions_of_equal_content_are_compared_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        for number in ("1.0.0", "1.0.1"):
            catalog.build(type("Twin", (Plain,), {"VERSION": number, "name": "twin"}))
        monkeypatch.setattr("registry.pages.other_versions._digest_at", None)
        page = answer(Visit(catalog=catalog, path=("datasets", "twin", "1.0.0", "records", "train", "3")))
        assert isinstance(page, Page)
        (other,) = page.values["others"]
        assert [other[name] for name in ("index", "is_equal", "by")] == [3, True, "place"]


def test_media_of_a_version_that_was_moved_meanwhile_are_found(gallery: registry.Catalog, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        gallery.copy(["gallery:1.0.0"], catalog)
        before = media_of(catalog, 0, "image", "small.png")
        copy = tmp_path / "elsewhere"
        shutil.move(catalog.data_dir, copy)
        catalog.mirrors.add("gallery:1.0.0", str(copy / "gallery" / "1.0.0"))
        with pytest.warns(MirrorWarning):
            assert media_of(catalog, 0, "image", "small.png") == before
