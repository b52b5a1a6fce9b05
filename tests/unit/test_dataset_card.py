"""The README.md of a folder of the hub: licence, summary and citation; a card that cannot be read changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from registry.interop.dataset_card import read_card
from registry.interop.parquet import describe_parquet
from registry.model import DatasetMetadata
from registry.storage import open_store

CARD = """---
license: cc-by-4.0
language:
- en
dataset_info:
  features:
  - name: license
    dtype: string
---

# Dataset Card for Animals

## Dataset Description

- **Homepage:** https://example.org

### Dataset Summary

<!-- a comment -->
Animals, and how many legs they have.

Two paragraphs.

### Supported Tasks

### Citation

```bibtex
@article{animals,
  title={Legs}
}
```
"""


def read(folder: Path, text: str | bytes) -> DatasetMetadata:
    (folder / "README.md").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_card(open_store(folder))


def test_a_card_is_read(tmp_path: Path) -> None:
    expected = DatasetMetadata(
        description="Animals, and how many legs they have.\n\nTwo paragraphs.",
        citation="@article{animals,\n  title={Legs}\n}",
        license="cc-by-4.0",
    )
    assert read(tmp_path, CARD) == expected
    assert read(tmp_path, b"\xef\xbb\xbf" + CARD.replace("\n", "\r\n").encode()) == expected
    assert read_card(open_store(tmp_path / "none")) == DatasetMetadata()


@pytest.mark.parametrize(
    ("front", "license_"),
    [
        ("license: [mit, apache-2.0]", "mit, apache-2.0"),
        ("license:\n- mit", "mit"),
        ("license: other\nlicense_name: our-terms", "our-terms"),
        ("license: other", "other"),
        ("license: null", ""),
        ("license: {a: b}", ""),
        ("a: {license: mit}", ""),
        ("- license\n- mit", ""),
        ("? [license]\n: mit", ""),
        ("a: &a mit\nlicense: *a", ""),
        ("", ""),
    ],
)
def test_licences(tmp_path: Path, front: str, license_: str) -> None:
    assert read(tmp_path, f"---\n{front}\n---\n").license == license_


def test_front_matter_that_is_not_yaml_is_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "---\nlicense: [mit\n---\n## Summary\nStill read.\n"
    assert read(tmp_path, text) == DatasetMetadata(description="Still read.")
    assert caplog.messages == [
        f"{tmp_path}/README.md: its front matter was not read, because it is not YAML: while parsing a flow sequence"
    ]


def test_a_long_card_is_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(tmp_path, CARD + " " * 2**20) == DatasetMetadata()
    assert caplog.messages == [f"{tmp_path}/README.md was not read: it is longer than 1048576 bytes"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"---\n",
        b"---\nlicense: mit\n",
        b"---\n" + b"[" * 50_000 + b"\n---\n",
        b"## Summary\n[More Information Needed]\n",
        b"```\n@misc{",
    ],
)
def test_a_readme_without_front_matter_adds_no_metadata(tmp_path: Path, text: bytes) -> None:
    assert read(tmp_path, text) == DatasetMetadata()


def test_metadata_in_the_files_takes_precedence_over_the_card(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(CARD)
    reported = json.dumps({"info": {"features": {}, "license": "cc0", "citation": ""}}).encode()
    parquet.write_table(
        pa.table({"x": [1]}).replace_schema_metadata({b"huggingface": reported}), tmp_path / "train.parquet"
    )
    found = describe_parquet(open_store(tmp_path), name="animals").metadata
    assert (found.license, found.citation[:8]) == ("cc0", "@article")
