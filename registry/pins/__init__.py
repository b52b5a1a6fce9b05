"""Pins: files that name the exact records of a dataset version, with the digests that prove them.

    version + expression --create--> PinFile (dataset.lock.yaml) --verify--> the same records, or what differs and where
                                        |--> read without a catalog, restore, bundle, cite, sign

``api/`` makes pins from a catalog's versions. Everything else in this folder needs only the pin file and the shards.
Names are loaded on first use, because a worker that hashes records needs neither pydantic nor YAML.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.pins.create import PinSource, choose_names, make_entry
    from registry.pins.document import AliasEntry, BuilderEntry, PinEntry
    from registry.pins.pin import Pin
    from registry.pins.pin_file import DEFAULT_FILENAME, PinFile
    from registry.pins.places import Places

__all__ = [
    "DEFAULT_FILENAME",
    "AliasEntry",
    "BuilderEntry",
    "Pin",
    "PinEntry",
    "PinFile",
    "PinSource",
    "Places",
    "choose_names",
    "make_entry",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "create": "PinSource choose_names make_entry",
        "document": "AliasEntry BuilderEntry PinEntry",
        "pin": "Pin",
        "pin_file": "DEFAULT_FILENAME PinFile",
        "places": "Places",
    },
)
