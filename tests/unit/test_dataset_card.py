"""The README.md of a folder of the hub: licence, summary and citation; a card that cannot be read changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from registry.interop.dataset_card import describe_card, read_card
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
        license="CC-BY-4.0",
        homepage="https://example.org",
    )
    assert read(tmp_path, CARD) == expected
    assert read(tmp_path, b"\xef\xbb\xbf" + CARD.replace("\n", "\r\n").encode()) == expected
    assert read_card(open_store(tmp_path / "none")) == DatasetMetadata()


@pytest.mark.parametrize(
    ("front", "license_"),
    [
        ("license: [mit, apache-2.0]", "mit, apache-2.0"),
        ("license:\n- mit", "MIT"),
        ("license: other\nlicense_name: our-terms", "our-terms"),
        ("license: other", "other"),
        ("license: null", ""),
        ("license: {a: b}", ""),
        ("a: {license: mit}", ""),
        ("- license\n- mit", ""),
        ("? [license]\n: mit", ""),
        ("a: &a mit\nlicense: *a", "MIT"),
        ("license: &a [mit, *a]", ""),
        ("license: no", "no"),
        ("license: 1.10", "1.10"),
        ("license: MIT or apache-2.0", "MIT OR Apache-2.0"),
        ("license: " + "(" * 300 + "mit" + ")" * 300, "(" * 300 + "mit" + ")" * 300),
        ("", ""),
    ],
)
def test_licences(tmp_path: Path, front: str, license_: str) -> None:
    assert read(tmp_path, f"---\n{front}\n---\n").license == license_


def test_tags_homepage_and_the_name_for_people_are_read(tmp_path: Path) -> None:
    front = "pretty_name: All Animals\nhomepage: https://example.org/animals\ntags: [legs, '', legs, null, 'two words']"
    found = read(tmp_path, f"---\n{front}\n---\n# Animals\n")
    assert (found.homepage, found.config_tags) == ("https://example.org/animals", ("legs", "two words"))
    assert found.custom == {"pretty_name": "All Animals"}
    assert describe_card(found) == (
        "the name 'All Animals', 2 tags, a homepage; no license, no citation, no description"
    )
    many = "\n".join(f"- t{number}" for number in range(1000))
    assert len(read(tmp_path, f"---\ntags:\n{many}\n---\n").config_tags) == 100
    for front in ("homepage: javascript:alert(1)", "homepage: [a]\npretty_name: {a: b}\ntags: {a: b}", "tags: null"):
        assert read(tmp_path, f"---\n{front}\n---\n") == DatasetMetadata()


@pytest.mark.parametrize(
    ("body", "description"),
    [
        ("# Animals\n\nLegs, counted.\n\nTwice.\n\n## Files\nOne.\n", "Legs, counted.\n\nTwice."),
        ("Before the title.\n\n# Animals\nAfter it.\n", "Before the title."),
        ("# Animals\n\n![picture](a.png)\n\n[![badge](b)](c)\n\nText.\n", "Text."),
        ("# Animals\n<!-- hidden -->\n\n```python\nx = 1\n```\n\n## Install\n\npip install x\n", ""),
        ("# Animals\n\n## Dataset Description\n- **Paper:** none\n\n### Summary\nLegs.\n", "Legs."),
        ("# A\n\n" + "x" * 20_000, "x" * 10_000),
    ],
)
def test_the_text_below_the_title_is_the_description_unless_there_is_a_summary(
    tmp_path: Path, body: str, description: str
) -> None:
    assert read(tmp_path, body).description == description


@pytest.mark.parametrize("url", ["https://a.org/x", "[here](https://a.org/x)", "<https://a.org/x>"])
def test_the_homepage_may_be_named_in_the_text(tmp_path: Path, url: str) -> None:
    assert read(tmp_path, f"## Dataset Description\n\n- **Homepage:** {url}\n").homepage == "https://a.org/x"


def test_a_long_text_that_aliases_repeat_costs_nothing(tmp_path: Path) -> None:
    card = f"a: &a {'x' * 500_000}\nlicense: [{'*a, ' * 100_000}]\ntags: [{'*a, ' * 10_000}]"
    assert read(tmp_path, f"---\n{card}\n---\n") == DatasetMetadata(license="x" * 10_000)


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
