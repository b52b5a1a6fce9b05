"""The blocks of the documents that need torch or Grain run, and print what the documents say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
READER = """
import registry

catalog = registry.connect()
catalog.build("digits")
reader = catalog.dataset("digits").read("train[:100]")
"""


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of a document in one language."""
    text = (DOCS / document).read_text(encoding="utf-8")
    return [block for found, block in BLOCK.findall(text) if found == language]


def run(code: str, folder: Path) -> str:
    """What a program prints, with a catalog of its own."""
    (folder / "blocks.py").write_text(code)
    cache = {"REGISTRY_CACHE_DIR": str(folder / "cache"), "REGISTRY_CACHE_BYTES": "1GB"}
    variables = {**os.environ, **cache, "REGISTRY_CATALOG": str(folder / "catalog.db"), "PYTHONPATH": str(folder)}
    variables.pop("REGISTRY_DATA_DIR", None)
    done = subprocess.run(
        [sys.executable, "blocks.py"], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_about_pytorch_prints_what_it_says(tmp_path: Path) -> None:
    assert run("\n".join(blocks("pytorch.md", "python")), tmp_path) == "".join(blocks("pytorch.md", "text"))


def test_the_program_that_resumes_ends_with_the_same_weights_however_often_it_stops(tmp_path: Path) -> None:
    pytest.importorskip("torchdata")
    (program,) = blocks("pytorch.md", "py")
    folders = uncut, cut = tmp_path / "uncut", tmp_path / "cut"
    for folder in folders:
        folder.mkdir()
    stopping = program.replace('"step": step}, CHECKPOINT)', '"step": step}, CHECKPOINT)\n                return')
    assert stopping != program
    printed = run(program, uncut)
    assert printed.startswith("16 ")
    assert [run(stopping, cut) for _ in range(5)] == ["", "", "", "", printed]  # the second stop is at an epoch's end


@pytest.mark.parametrize(
    ("package", "last"),
    [
        ("torch", "print([images.shape[0] for images, _ in DataLoader(dataset, batch_size=40)], len(loader))"),
        ("grain", "print(sum(len(batch['label']) for batch in dataset))"),
    ],
)
def test_the_blocks_of_the_page_about_reading_run(package: str, last: str, tmp_path: Path) -> None:
    pytest.importorskip(package)
    (block,) = (
        one for one in blocks("reading.md", "py") if re.search(rf"^(import|from) {package}\b", one, re.MULTILINE)
    )
    printed = run(f"{READER}\n{block}\n{last}", tmp_path)
    assert printed == ("[40, 40, 20] 4\n" if package == "torch" else "300\n")
