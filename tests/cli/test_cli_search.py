"""``registry search``: what people see, and what programs get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import registry

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_programs_get_the_hits(digits: Cli) -> None:
    answer = digits("search", "digits", "--format", "json").json()

    assert set(answer) == {"schema", "data", "warnings"}
    assert (answer["schema"], answer["warnings"]) == ("registry.search/1", [])
    (hit,) = answer["data"]
    assert set(hit) == {"dataset", "version", "status", "matched", "score", "snippet", "description"}
    assert (hit["dataset"], hit["version"], hit["status"]) == ("digits", "1.0.0", "canonical")
    assert hit["matched"][0] == "name"
    assert hit["score"] > 10_000
    with registry.connect() as catalog:
        assert hit["description"] == catalog.dataset("digits").metadata.description
        assert [found.dataset for found in catalog.search("digits")] == ["digits"]


def test_more_hits_than_the_limit_are_told_of(cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "many.py").write_text(
        "from registry import DatasetBuilder, BuilderConfig\n"
        "from registry.features import FeaturesDict\n"
        "class Many(DatasetBuilder):\n"
        "    '''Numbers, and nothing else.'''\n"
        "    VERSION = '1.0.0'\n"
        "    BUILDER_CONFIGS = [BuilderConfig(name=name) for name in ('a', 'b', 'c')]\n"
        "    def features(self):\n"
        "        return FeaturesDict({'number': 'int64'})\n"
        "    def splits(self):\n"
        "        return {'train': [(0, {'number': 0})]}\n"
    )
    monkeypatch.syspath_prepend(str(workspace))
    import many

    with registry.connect() as catalog:
        for config in "abc":
            catalog.build(many.Many(config=config))
    note = "note: only the best 2 are shown. Add a word to narrow the search, or raise --limit."
    ran = cli("search", "numbers", "--limit", "2")
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == ["many/a", "many/b"]
    assert ran.err == f"{note}\n"
    answer = cli("search", "numbers", "--limit", "2", "--format", "json").json()
    assert [hit["dataset"] for hit in answer["data"]] == ["many/a", "many/b"]
    assert answer["warnings"] == [note]
    assert cli("search", "numbers", "--limit", "3").err == ""
