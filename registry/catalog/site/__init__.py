"""Opens the catalog of a site, a folder of files on a web server that ``registry site`` wrote, read-only.

    site.json  ->  SiteIndex  ->  catalog/<digest>.db.gz  ->  verified, in the cache  ->  SqlCatalog

``catalog.py`` answers the calls of the protocol, ``requests.py`` makes the requests, ``snapshot.py`` verifies what they
bring, and ``history.py`` remembers the head of the log, so that no site is rolled back or forked unseen.
"""

from registry.catalog.site.catalog import SiteCatalog, SiteOptions

__all__ = ["SiteCatalog", "SiteOptions"]
