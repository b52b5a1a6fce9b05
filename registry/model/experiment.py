"""Which behaviour may a version switch on or off? A flag with a default, as the TFDS versioning document has it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A flag that a builder asks for while it generates. A version may override ``default`` either way."""

    name: str
    description: str = ""
    default: bool = False
