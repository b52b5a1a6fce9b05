"""docs/environment.md lists exactly the variables that the code reads, with the defaults of the code."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from registry.catalog.session import Limits as CatalogLimits
from registry.environment import read_number
from registry.errors import UsageError
from registry.server.config import PREFIX, ServiceConfig
from registry.storage.network import Limits as StoreLimits

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/environment.md").read_text(encoding="utf-8")


def test_the_page_lists_the_variables_of_the_code() -> None:
    sources = [path for folder in ("registry", "builders", "migrations") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 200
    found = {name for path in sources for name in re.findall(r"\bREGISTRY_[A-Z_]+\b", path.read_text(encoding="utf-8"))}
    found |= {f"{PREFIX}{field.name.upper()}" for field in fields(ServiceConfig)}
    found.remove(PREFIX)
    listed = re.findall(r"^\| `(REGISTRY_[A-Z_]+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(listed) == sorted(found)


def test_the_variables_of_the_registry_are_read_in_one_place() -> None:
    direct = re.compile(r"os\.environ(?:\.get\(|\[)(?:\w*VARIABLE|\"REGISTRY_)")
    sources = [*(ROOT / "registry").rglob("*.py"), *(ROOT / "builders").rglob("*.py")]
    assert [path.name for path in sources if direct.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("text", ["many", "0", "-1", "nan", "inf", "1000000"])
def test_a_number_that_cannot_be_used_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", text)
    with pytest.raises(UsageError) as caught:
        read_number("REGISTRY_TRIES", 8)
    assert str(caught.value) == f"REGISTRY_TRIES is {text!r}: expected a positive number"
    assert caught.value.hint == "Set it to a number, e.g. REGISTRY_TRIES=8, or unset it."
    assert caught.value.details == {"name": "REGISTRY_TRIES", "value": text}


@pytest.mark.parametrize(("text", "number"), [("", 8), (" ", 8), (" 3 ", 3), ("0.5", 0.5)])
def test_an_empty_number_counts_as_unset(text: str, number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", text)
    assert read_number("REGISTRY_TRIES", 8) == number


def test_the_page_gives_the_defaults_of_the_limits() -> None:
    names = {
        "connect_seconds": "REGISTRY_CONNECT_TIMEOUT",
        "read_seconds": "REGISTRY_READ_TIMEOUT",
        "retry_seconds": "REGISTRY_RETRY_TIMEOUT",
        "query_seconds": "REGISTRY_QUERY_TIMEOUT",
        "lock_seconds": "REGISTRY_LOCK_TIMEOUT",
        "tries": "REGISTRY_TRIES",
    }
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (?:seconds|number) \| (\d*) ?\| (\d*) ?\|$", PAGE, flags=re.MULTILINE)
    defaults = [
        {names[name]: f"{parameter.default:g}" for name, parameter in inspect.signature(kind).parameters.items()}
        for kind in (StoreLimits, CatalogLimits)
    ]
    assert sorted(rows) == sorted((name, *(limits.get(name, "") for limits in defaults)) for name in names.values())


def test_the_page_gives_the_defaults_of_a_service() -> None:
    rows = dict(re.findall(rf"^\| `{PREFIX}([A-Z_]+)` \| [^|]+ \| ([^|]+) \|$", PAGE, flags=re.MULTILINE))
    for field in fields(ServiceConfig):
        if isinstance(field.default, int) and not isinstance(field.default, bool):
            assert rows[field.name.upper()] == f"{field.default:,}"
