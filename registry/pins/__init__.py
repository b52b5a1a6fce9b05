"""How does a stranger get the same records in ten years? A pin file, what proves it, and what is made of it.

version + expression --create--> PinFile (dataset.lock.yaml) --verify--> the same records, or what differs and where
                                    |--> read without a catalog, restore, bundle, cite, sign
"""

from registry.pins.create import PinSource, check_locations, choose_names, make_entry
from registry.pins.document import AliasEntry, BuilderEntry, PinEntry
from registry.pins.pin_file import DEFAULT_FILENAME, Pin, PinFile
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
    "check_locations",
    "choose_names",
    "make_entry",
]
