"""From FileInstructions to records, and from records to examples: the last two steps of every read."""

from registry.reading.reader import Reader

__all__ = ["Reader"]
