"""The options of the suite. pytest loads this file in every run, by its entry point.

It adds them only if the suite is run. A ``conftest.py`` cannot: pytest reads those of ``--pyargs`` too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_load_initial_conftests(parser: pytest.Parser, args: Sequence[str]) -> None:
    """Add the options if the suite is run."""
    if any("registry.conformance" in each.replace("/", ".") for each in args):
        group = parser.getgroup("conformance", "a service of a catalog")
        group.addoption("--url", metavar="URL", help="The URL of the service")
        group.addoption("--admin-token", metavar="TEXT", help="An admin token; prefer $REGISTRY_TOKEN")
        group.addoption("--read-only", action="store_true", help="Run only checks that change nothing")
