"""Stores the bytes of datasets: local folders, object stores and web servers behind one interface, ``Store``.

A store reads files, writes a new file in one step, and stages a whole folder that becomes visible at once. Code in the
layers above opens no paths: it receives a ``Store`` that is rooted at one folder, and names that stay inside it.
"""

from typing import TYPE_CHECKING

from registry.errors import FolderExistsError as FolderExistsError
from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.storage.cache import parse_bytes as parse_bytes
    from registry.storage.consent import Allowed as Allowed
    from registry.storage.faults import storage_errors as storage_errors
    from registry.storage.local import LocalStore as LocalStore
    from registry.storage.location import expand_home as expand_home
    from registry.storage.location import local_path as local_path
    from registry.storage.location import open_location as open_location
    from registry.storage.location import open_locations as open_locations
    from registry.storage.location import open_named as open_named
    from registry.storage.location import open_parent as open_parent
    from registry.storage.location import open_store as open_store
    from registry.storage.location import read_file as read_file
    from registry.storage.location import require_no_secrets as require_no_secrets
    from registry.storage.location import require_plain as require_plain
    from registry.storage.location import require_well_written as require_well_written
    from registry.storage.location import spell_place as spell_place
    from registry.storage.names import Owner as Owner
    from registry.storage.names import is_unfinished as is_unfinished
    from registry.storage.names import new_unfinished_file as new_unfinished_file
    from registry.storage.staged import InnerFolder as InnerFolder
    from registry.storage.staged import abandoned_folders as abandoned_folders
    from registry.storage.staged import clear_abandoned as clear_abandoned
    from registry.storage.store import RenamedStore as RenamedStore
    from registry.storage.store import StagedFolder as StagedFolder
    from registry.storage.store import Store as Store


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
