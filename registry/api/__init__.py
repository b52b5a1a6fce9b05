"""The Python API: connect to a catalog, look up a dataset, slice it, read it, publish it.

Only this folder wires the parts together; the command line is built on it.

    catalog = registry.connect()
    digits = catalog.dataset("digits")
    for example in digits.read("train[:10%]"): ...
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.api.arguments import DatasetLike, read_uses
    from registry.api.backups import back_up, restore
    from registry.api.catalog import Catalog, connect
    from registry.api.dataset import Dataset
    from registry.api.loading import add, as_dataframe, builder, load, load_pin
    from registry.api.locations import cache, catalog_url, data_folder, make_catalog_folder
    from registry.api.lock import is_locked, locked
    from registry.api.reports import AddReport
    from registry.api.team import verify_webhook

__all__ = [
    "AddReport", "Catalog", "Dataset", "DatasetLike", "add", "as_dataframe", "back_up", "builder", "cache",
    "catalog_url", "connect", "data_folder", "is_locked", "load", "load_pin", "locked", "make_catalog_folder",
    "read_uses", "restore", "verify_webhook",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "arguments": "DatasetLike read_uses",
        "backups": "back_up restore",
        "catalog": "Catalog connect",
        "dataset": "Dataset",
        "loading": "add as_dataframe builder load load_pin",
        "locations": "cache catalog_url data_folder make_catalog_folder",
        "lock": "is_locked locked",
        "reports": "AddReport",
        "team": "verify_webhook",
    },
)
