"""How is an image stored whose pixels are classes? As an image of one channel; the names of the classes in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from registry.features.class_label import ClassLabel
from registry.features.feature import Shape, feature_fault
from registry.features.image import Image


@dataclass(frozen=True, kw_only=True, repr=False)
class LabeledImage(Image):
    """An image of one channel, whose pixels are numbers of classes, e.g. of a segmentation. Decodes as an ``Image``.

    Give ``names`` or ``num_classes`` (0 where it is not known) as for a ``ClassLabel``; ``label`` is that one.

    >>> LabeledImage(names=["background", "car"], shape=(4, 4, 1)).label.int2str(1)
    'car'

    Raises:
        FeatureError: as for ``Image`` and ``ClassLabel``; more than one channel.
    """

    num_classes: int | None = None
    names: Any = None
    shape: Shape = (None, None, 1)
    use_colormap: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape[2] != 1:
            raise feature_fault("", f"an image of classes has one channel, not {self.shape[2]}")
        label = ClassLabel(num_classes=self.num_classes, names=self.names)
        object.__setattr__(self, "names", label.names)
        object.__setattr__(self, "num_classes", label.num_classes)

    @property
    def label(self) -> ClassLabel:
        """What a pixel is."""
        return ClassLabel(num_classes=self.num_classes, names=self.names)
