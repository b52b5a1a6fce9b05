"""Chromium renders what a notebook shows: nothing of a dataset runs, and it is readable in light and in dark."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import registry
from registry.features import ClassLabel, FeaturesDict, Image, Text
from registry.images import decode_picture, read_picture

pytestmark = pytest.mark.chromium

HOSTILE = "</td></table><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Hostile(registry.DatasetBuilder):
    """<script>document.title = "owned"</script>"""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {"name": Text(), "label": ClassLabel(names=[HOSTILE, "b"]), "red": Image(shape=(40, 40, 3))}
        )

    def splits(self) -> Any:
        red = np.full((40, 40, 3), (250, 0, 0), np.uint8)
        return {"train": [(i, {"name": HOSTILE, "label": i % 2, "red": red}) for i in range(4)]}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    with registry.connect(tmp_path_factory.mktemp("catalog") / "catalog.db") as catalog:
        catalog.build(Hostile)
        dataset = catalog.dataset("hostile")
        statistics = dataset.compute_statistics()
        pins = dataset.pin("train[:2]")
        objects = (catalog, dataset, dataset.read("train"), dataset.resolve("train"), pins, statistics)
        return "<hr>".join(value._repr_html_() for value in objects)


def browse(page: Path, *options: str) -> bytes:
    profile = page.with_suffix(".profile")
    command = ["chromium", *OPTIONS, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, check=True, timeout=100).stdout


@pytest.mark.parametrize(
    ("text", "background"), [("#111111", "#ffffff"), ("#eeeeee", "#111111")], ids=["light", "dark"]
)
def test_a_page_is_readable_and_runs_nothing(shown: str, tmp_path: Path, text: str, background: str) -> None:
    page = tmp_path / "page.html"
    style = f"body {{ color: {text}; background: {background}; font-family: sans-serif }}"
    page.write_text(f"<!doctype html><meta charset=utf-8><title>mine</title><style>{style}</style>{shown}")
    dom = browse(page, "--dump-dom").decode()
    assert "<title>mine</title>" in dom
    assert "<script" not in dom
    browse(page, f"--screenshot={tmp_path}/page.png", "--window-size=1200,900")
    pixels = decode_picture(read_picture((tmp_path / "page.png").read_bytes()), channels=3, wide=False).reshape(-1, 3)
    ink, paper = (np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) for color in (text, background))

    def share(color: Any) -> float:
        return float((np.abs(pixels.astype(int) - color).max(axis=1) < 12).mean())

    assert share(paper) > 0.7
    assert share(ink) > 0.002  # letters
    assert share([250, 0, 0]) > 8 * 40 * 40 / (1200 * 900) / 2  # the pictures
