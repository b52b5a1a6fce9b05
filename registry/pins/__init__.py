"""How does a stranger get the same records in ten years? A pin file, what proves it, and what is made of it.

    version + expression --create--> PinFile (dataset.lock.yaml) --verify--> the same records, or what differs and where
                                        |--> read without a catalog, restore, bundle, cite, sign

Names are loaded when they are first used: a worker that hashes records needs neither pydantic nor YAML.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from registry.pins.create import PinSource, choose_names, make_entry
    from registry.pins.document import AliasEntry, BuilderEntry, PinEntry
    from registry.pins.pin import Pin
    from registry.pins.pin_file import DEFAULT_FILENAME, PinFile
    from registry.pins.places import Places

_HOME_OF: Final = {
    **dict.fromkeys(("PinSource", "choose_names", "make_entry"), "registry.pins.create"),
    **dict.fromkeys(("AliasEntry", "BuilderEntry", "PinEntry"), "registry.pins.document"),
    **dict.fromkeys(("DEFAULT_FILENAME", "PinFile"), "registry.pins.pin_file"),
    "Pin": "registry.pins.pin",
    "Places": "registry.pins.places",
}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'registry.pins' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
