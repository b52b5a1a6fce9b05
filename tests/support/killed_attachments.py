"""A program that attaches or adds, and is killed at a call: ``CATALOG DATA WHAT CALL BEFORE|AFTER``."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

import registry
from registry.api.locations import open_data
from registry.catalog.sql_catalog import SqlCatalog
from registry.model import Attachment
from registry.publishing import attachments
from support.attached_folds import attach_counts

CALLS: dict[str, tuple[Any, str]] = {
    "put": (attachments, "put_attachments"),
    "row": (SqlCatalog, "attach"),
    "publish": (SqlCatalog, "publish"),
}
NOTES = b"some notes"


def die_at(call: str, when: str) -> None:
    """Kill this process before or after the first such call."""
    owner, name = CALLS[call]
    original = getattr(owner, name)

    def killed(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            original(*args, **kwargs)
        os._exit(9)

    setattr(owner, name, killed)


def attach_notes(catalog: registry.Catalog) -> bool:
    """Attach notes to the version of ``numbers``."""
    data = open_data(catalog.data_dir, catalog=catalog.backend)
    attachment = Attachment.of("notes", "notes.txt", NOTES)
    facts = catalog.dataset("numbers").facts
    return attachments.attach(catalog.backend, data, facts, attachment, NOTES, actor="ann")


def main() -> None:
    """Run it."""
    catalog_path, data_dir, task, call, when = sys.argv[1:]
    attach_counts(pytest.MonkeyPatch())
    with registry.connect(catalog_path, data_dir=data_dir) as catalog:
        if task == "attach":
            catalog.dataset("numbers")
            die_at(call, when)
            attach_notes(catalog)
        else:
            die_at(call, when)
            catalog.add({"train": {"value": [1, 2, 3]}, "test": {"value": [7]}}, "numbers")


if __name__ == "__main__":
    main()
