"""The catalog protocol over HTTP: values as JSON (``messages.py``), the table of calls (``calls.py``), and the client.

``registry.server`` answers. Client and server share this folder, so that no call is described twice.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.catalog.service.catalog import ServiceCatalog

__all__ = ["ServiceCatalog"]

__getattr__, __dir__ = lazy_exports(__name__, {"catalog": "ServiceCatalog"})
