"""Pages about a catalog: HTML for people and the same values as JSON for programs.

    address -> ``answer`` (routes.py) -> a function of one page -> ``Page`` -> ``render`` (rendering.py) -> HTML or JSON

A function of a page calls the catalog and ``Dataset``, and returns plain values; a template turns them into HTML.
``registry browse`` serves pages to their owner (``registry.server``), ``registry site`` writes them as files.
"""

from registry.lazy import lazy_exports
from registry.pages.page import Media, Page, Visit, Visitor
from registry.pages.rendering import error_values, json_of, render, render_alone, rendered_error, status_of
from registry.pages.routes import FORM_PAGES, act, answer

__all__ = [
    "FORM_PAGES",
    "Media",
    "Page",
    "SiteOptions",
    "SiteReport",
    "Visit",
    "Visitor",
    "act",
    "answer",
    "error_values",
    "json_of",
    "render",
    "render_alone",
    "rendered_error",
    "status_of",
    "write_site",
]

__getattr__, __dir__ = lazy_exports(__name__, {"site": "SiteOptions SiteReport write_site"})
