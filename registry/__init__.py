"""A registry of dataset versions: published once, found by name, sliced by an expression, read, and pinned in a paper.

    >>> import registry
    >>> registry.Version.parse("3.0.1").bump("minor")
    Version(major=3, minor=1, patch=0)

Names are loaded when they are first used, so that ``import registry`` costs next to nothing.
"""

__version__ = "0.1.0"
