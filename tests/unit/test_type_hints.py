"""``typing.get_type_hints`` works for every public name and every call of the catalog, although imports are lazy."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import registry
from registry import api, catalog, errors, features, model, slim
from registry.catalog import backend


def public_objects() -> Iterator[tuple[str, Any]]:
    for module in (registry, api, catalog, errors, features, model, slim):
        names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
        for name in names:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


def catalog_calls() -> Iterator[tuple[str, Any]]:
    for group in list(vars(backend).values()):
        if inspect.isclass(group) and group.__module__ == backend.__name__:
            yield group.__name__, group
            for name, member in vars(group).items():
                function = getattr(member, "fget", member)
                if inspect.isfunction(function):
                    yield f"{group.__name__}.{name}", function


@pytest.mark.parametrize("objects", [public_objects, catalog_calls], ids=["public", "protocol"])
def test_all_annotations_can_be_resolved(objects: Any) -> None:
    values = dict(objects())
    assert len(values) > 100
    unresolved = {}
    for name, value in values.items():
        try:
            with suppress(ImportError):  # of an extra that is not installed
                typing.get_type_hints(value)
        except (NameError, TypeError) as error:
            unresolved[name] = str(error)
    assert unresolved == {}


def test_a_name_for_type_checkers_is_resolved_to_its_class() -> None:
    assert typing.get_type_hints(registry.DatasetVersion)["splits"] == tuple[registry.Split, ...]
    assert typing.get_type_hints(catalog.EventPage)["events"] == tuple[model.Event, ...]
    assert typing.get_type_hints(catalog.CatalogBackend.published)["return"] == registry.DatasetVersion | None
    assert typing.get_type_hints(api.read_uses)["return"] == list[model.Use]
