"""Pins: files that name the exact records of a dataset version, with the digests that prove them.

    version + expression --create--> PinFile (dataset.lock.yaml) --verify--> the same records, or what differs and where
                                        |--> read without a catalog, restore, bundle, cite, sign

``api/`` makes pins from a catalog's versions. Everything else in this folder needs only the pin file and the shards.
Names are loaded on first use, because a worker that hashes records needs neither pydantic nor YAML.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.pins.create import PinSource as PinSource
    from registry.pins.create import choose_names as choose_names
    from registry.pins.create import make_entry as make_entry
    from registry.pins.document import AliasEntry as AliasEntry
    from registry.pins.document import BuilderEntry as BuilderEntry
    from registry.pins.pin import Pin as Pin
    from registry.pins.pin_file import PinFile as PinFile
    from registry.pins.places import Places as Places


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "create": "PinSource choose_names make_entry",
        "document": "AliasEntry BuilderEntry",
        "pin": "Pin",
        "pin_file": "PinFile",
        "places": "Places",
    },
)
