"""The catalog protocol over HTTP: values as JSON (``messages.py``), the table of calls (``calls.py``), and the client.

``registry.server`` answers. Client and server share this folder, so that no call is described twice.
"""

from registry.catalog.service.catalog import ServiceCatalog

__all__ = ["ServiceCatalog"]
