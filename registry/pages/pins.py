"""The page of pins: a pin file that a visitor pastes is checked against the catalog and explained pin by pin."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from registry.envelope import fields_of
from registry.errors import PinFormatError, RegistryError
from registry.pages.page import Page, Visit, version_path

_MOST_BYTES: Final = 2**18
"""A file with a thousand shards is smaller. To read a megabyte of YAML takes seconds."""

_MOST_PINS: Final = 100
_MOST_SENTENCES: Final = 60

_CODE: Final = {
    "Create a pin file": "registry pin create mnist:3.0.1 'train[:80%]' -o dataset.lock.yaml",
    "Python": 'import registry\n\nfor example in registry.load_pin("dataset.lock.yaml")["train"].read():\n    ...',
    "Verify the files": "registry pin verify dataset.lock.yaml",
    "Compare with an older file": "registry pin diff old.lock.yaml dataset.lock.yaml --html pins.html",
}


def pins(visit: Visit) -> Page:
    """What a pin is and how to make one; with a form, what the pins of a file are and whether they are still good."""
    text = visit.form.get("text", "").replace("\r\n", "\n")  # browsers send lines of forms so
    values: dict[str, Any] = {"text": text[:_MOST_BYTES], "problem": None, "checked": None, "code": _CODE}
    if text.strip():
        try:
            values["checked"] = _checked(visit, text.encode("utf-8", "surrogatepass"))
        except RegistryError as error:
            values["problem"] = fields_of(error, "code", "message", "hint")
    return Page(name="pins", title="Pins", values=values)


def _checked(visit: Visit, data: bytes) -> dict[str, Any]:
    """The pins of a file and their state in the catalog.

    Raises:
        PinFormatError, PinChangedError: the text is not a pin file, or was changed.
    """
    from registry.pins import PinFile

    if len(data) > _MOST_BYTES:
        raise PinFormatError(
            f"the file has {len(data):,} bytes, more than {_MOST_BYTES:,}", hint="registry pin show FILE"
        )
    file = PinFile.from_yaml(data, "the text")
    chosen = list(islice(file.values(), _MOST_PINS))
    states = visit.catalog.pins.states(chosen)
    return {
        "digest": file.digest,
        "created_by": file.document.created_by,
        "num_pins": len(file),
        "pins": [_pin(pin, state) for pin, state in zip(chosen, states, strict=True)],
    }


def _pin(pin: Any, state: Any) -> dict[str, Any]:
    from registry.pins.citation import Citation
    from registry.pins.compare import explain_pin

    return {
        **fields_of(pin, "name", "reference", "split", "num_examples"),
        **fields_of(state, "state", "message", "is_withdrawn", "correction"),
        "path": version_path(pin.reference) if state.state not in ("unknown", "dropped") else None,
        "version_digest": pin.entry.version_digest,
        "records": pin.entry.records.ordered,
        "sentences": list(islice(explain_pin(pin), _MOST_SENTENCES)),
        "citation": str(Citation.of(pin.entry)),
    }
