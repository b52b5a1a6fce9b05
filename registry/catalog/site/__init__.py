"""Opens the catalog of a site, a folder of files on a web server that ``registry site`` wrote, read-only.

    site.json  ->  SiteIndex  ->  catalog/<digest>.db.gz  ->  verified, in the cache  ->  SqlCatalog

``catalog.py`` answers the calls of the protocol, ``requests.py`` makes the requests, ``snapshot.py`` verifies what they
bring, and ``history.py`` remembers the head of the log, so that no site is rolled back or forked unseen.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.catalog.site.catalog import SiteCatalog
    from registry.catalog.site.options import SiteOptions

__all__ = ["SiteCatalog", "SiteOptions"]

__getattr__, __dir__ = lazy_exports(__name__, {"catalog": "SiteCatalog", "options": "SiteOptions"})
