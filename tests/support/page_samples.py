"""A catalog with everything that pages show: pictures, sounds, boxes, dates, states, and hostile content."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

import registry
from registry.features import (
    Audio,
    BBox,
    ClassLabel,
    FeaturesDict,
    Image,
    Scalar,
    Sequence,
    Tensor,
    Text,
    Translation,
    Video,
)
from support.media_samples import picture, sound

OWNED: Final = "document.title='owned'"
HOSTILE: Final = (
    f'</td></table></script></style></textarea></title><script>{OWNED}</script><img src=x onerror="{OWNED}">'
    f"<svg onload=\"{OWNED}\"><style>*{{display:none}}</style><base href=//evil.example/><iframe srcdoc='x'></iframe>"
    f'<a href="javascript:{OWNED}">x</a>"\'`-->]]>&lt;{{{{7*7}}}}${{7*7}}\u202e\u2066\ufeff\x07é😀'
)
"""Text that leaves the place where it is inserted, if it can."""

SVG: Final = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{OWNED}"><script>{OWNED}</script></svg>'.encode()
CARD: Final = f"""# A card

*Words*, [a link](https://example.org/), [a bad one](javascript:{OWNED}), ![a picture](https://example.org/x.png)
[data](data:text/html,<script>{OWNED}</script>)

{HOSTILE}

```html
<script>{OWNED}</script>
```

| a | b |
|---|---|
| 1 | {"w" * 300} |
"""
KEY: Final = "<img src=x onerror=alert(1)> &amp; 'a' %2F é"


def _scene(i: int) -> np.ndarray[Any, Any]:
    rows, columns = np.mgrid[0:48, 0:64]
    return np.stack([rows * 5, columns * 4, (rows + columns + 40 * i) % 256], axis=-1).astype(np.uint8)


class Scenes(registry.DatasetBuilder):
    """Pictures with masks and boxes, sounds, films, texts in two languages, dates and nested values."""

    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": "First release", "2.0.0": "Two more scenes", "3.0.0": "Other masks"}
    num = 30

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "scene": Image(shape=(48, 64, 3)),
                "mask": Image(shape=(48, 64, 1)),
                "boxes": Sequence({"bbox": BBox(), "label": ClassLabel(names=["cat", "dog"])}),
                "sound": Audio(shape=(None,), dtype="int16", lazy_decode=True, file_format="wav"),
                "film": Video(shape=(None, 8, 8, 3)),
                "text": Text(),
                "translation": Translation(languages=["de", "en"]),
                "day": Scalar("int32", description="date32[day]: days since 1970-01-01."),
                "price": Scalar("float32"),
                "embedding": Tensor(shape=(32,), dtype="float32"),
                "flag": Scalar("bool"),
                "label": ClassLabel(num_classes=1000),
                "nested": {"deep": {"x": Sequence(Scalar("int64"))}},
            }
        )

    def splits(self) -> Any:
        return {"train": self._rows(self.num), "test": self._rows(5)}

    def _rows(self, number: int) -> Any:
        for i in range(number):
            boxes = [{"bbox": [0.1, 0.2, 0.5, 0.9], "label": i % 2}] * (i % 3)
            yield (
                i,
                {
                    "scene": _scene(i),
                    "mask": (_scene(i)[:, :, :1] > 100 + 50 * int(str(self.VERSION)[0])).astype(np.uint8),
                    "boxes": boxes,
                    "sound": sound("WAV", rate=8000),
                    "film": [np.full((8, 8, 3), 40 * (i % 6), np.uint8)] * 2,
                    "text": f"The scene with the number {i}. " * (1 + 10 * (i % 5)),
                    "translation": {"de": f"Szene {i}", "en": f"scene {i}"},
                    "day": 20_000 + i,
                    "price": [float(i), float("nan"), float("inf")][min(i % 9, 2)],
                    "embedding": np.sin(np.arange(32) + i).astype(np.float32),
                    "flag": i % 2 == 0,
                    "label": i * 31 % 1000,
                    "nested": {"deep": {"x": list(range(i % 4))}},
                },
            )


class MoreScenes(Scenes):
    name = "scenes"
    VERSION = "2.0.0"
    num = 32


class OtherScenes(Scenes):
    name = "scenes"
    VERSION = "3.0.0"


class Hostile(registry.DatasetBuilder):
    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": HOSTILE, "2.0.0": HOSTILE}

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                KEY: Text(),
                "label": ClassLabel(names=[HOSTILE.replace("\x07", ""), "b"]),
                "svg": Text(),
                "long": Text(),
                "picture": Image(shape=(None, None, 3)),
            }
        )

    def splits(self) -> Any:
        picture_file = picture("PNG")
        row = {KEY: HOSTILE, "svg": SVG.decode(), "long": "w" * 20_000, "picture": picture_file}
        return {"train": [(i, {**row, "label": i % 2}) for i in range(4)]}


class MoreHostile(Hostile):
    name = "hostile"
    VERSION = "2.0.0"

    def splits(self) -> Any:
        rows = super().splits()["train"]
        return {"train": [(key, {**row, KEY: f"{row[KEY]} and {key}"}) for key, row in rows]}


class Wide(registry.DatasetBuilder):
    """Many features with long names."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({f"a_rather_long_name_of_a_measured_value_{i}": Scalar("float64") for i in range(30)})

    def splits(self) -> Any:
        names = list(self.features())
        return {f"split_{s}": [(i, dict.fromkeys(names, i * 1e9)) for i in range(12)] for s in range(3)}


def make_catalog(folder: Path) -> Path:
    """The file of a new catalog with digits, earth_patches and the datasets above, in every state."""
    file = folder / "my catalog.db"
    with registry.connect(file, create=True) as catalog:
        for builder in ("digits", "earth_patches", Scenes, MoreScenes, OtherScenes, Hostile, MoreHostile, Wide):
            catalog.build(builder)
        catalog.describe("hostile:2.0.0", description=CARD, citation=f"@misc{{x, title={{{HOSTILE}}}}}", license="MIT")
        catalog.describe("hostile:2.0.0", tags=["<b>", OWNED])
        catalog.describe(
            "scenes:3.0.0", tags=["images", "sounds"], license="CC-BY-4.0", homepage="https://example.org/"
        )
        for reference in (
            "digits:1.0.0",
            "scenes:1.0.0",
            "scenes:2.0.0",
            "scenes:3.0.0",
            "hostile:2.0.0",
            "wide:1.0.0",
        ):
            catalog.dataset(reference).compute_statistics()
        catalog.aliases.set("paper", "scenes:1.0.0")
        catalog.lifecycle.deprecate("scenes:1.0.0", reason=HOSTILE)
        catalog.lifecycle.yank("scenes:2.0.0", reason="Wrong boxes", superseded_by="3.0.0")
    return file
