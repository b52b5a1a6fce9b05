"""Where the bytes of a dataset are stored: folders of this machine, or prefixes of object stores, behind one interface.

Reading, writing a new file in one step, and staging a whole folder that becomes visible at once. Nothing above this
folder touches a path: it is handed a ``Store``, rooted at one folder, and names that stay inside it.
"""

from registry.errors import FolderExistsError
from registry.storage.consent import Allowed
from registry.storage.location import open_location, open_named, open_store, require_no_secrets
from registry.storage.store import RenamedStore, StagedFolder, Store

__all__ = [
    "Allowed",
    "FolderExistsError",
    "RenamedStore",
    "StagedFolder",
    "Store",
    "open_location",
    "open_named",
    "open_store",
    "require_no_secrets",
]
