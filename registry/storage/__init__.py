"""Stores the bytes of datasets: local folders, object stores and web servers behind one interface, ``Store``.

A store reads files, writes a new file in one step, and stages a whole folder that becomes visible at once. Code in the
layers above opens no paths: it receives a ``Store`` that is rooted at one folder, and names that stay inside it.
"""

from typing import TYPE_CHECKING

from registry.errors import FolderExistsError
from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.storage.cache import parse_bytes
    from registry.storage.consent import Allowed
    from registry.storage.faults import storage_errors
    from registry.storage.local import LocalStore
    from registry.storage.location import (
        expand_home,
        local_path,
        open_location,
        open_locations,
        open_named,
        open_parent,
        open_store,
        read_file,
        require_no_secrets,
        require_plain,
        require_well_written,
        spell_place,
    )
    from registry.storage.names import Owner, is_unfinished, new_unfinished_file
    from registry.storage.staged import InnerFolder, abandoned_folders, clear_abandoned
    from registry.storage.store import RenamedStore, StagedFolder, Store

__all__ = [
    "Allowed",
    "FolderExistsError",
    "InnerFolder",
    "LocalStore",
    "Owner",
    "RenamedStore",
    "StagedFolder",
    "Store",
    "abandoned_folders",
    "clear_abandoned",
    "expand_home",
    "is_unfinished",
    "local_path",
    "new_unfinished_file",
    "open_location",
    "open_locations",
    "open_named",
    "open_parent",
    "open_store",
    "parse_bytes",
    "read_file",
    "require_no_secrets",
    "require_plain",
    "require_well_written",
    "spell_place",
    "storage_errors",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "cache.folder": "parse_bytes",
        "consent": "Allowed",
        "faults": "storage_errors",
        "local": "LocalStore",
        "location": (
            "expand_home local_path open_location open_locations open_named open_parent open_store "
            "read_file require_no_secrets require_plain require_well_written spell_place"
        ),
        "names": "Owner is_unfinished new_unfinished_file",
        "staged": "InnerFolder abandoned_folders clear_abandoned",
        "store": "RenamedStore StagedFolder Store",
    },
)
