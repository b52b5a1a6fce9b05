"""What of a read goes into NumPy and pandas, in TFDS's words? ``as_numpy`` and ``as_dataframe``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from registry.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


def as_numpy(dataset: T) -> T:
    """``dataset`` itself: examples are dicts of NumPy values already."""
    return dataset


def as_dataframe(dataset: Any, ds_info: Any = None) -> pd.DataFrame:
    """The examples of a reader as a DataFrame, as ``Reader.to_pandas``; of supervised pairs, the features in them.

    ``ds_info`` is taken for TFDS's sake: a reader knows its features.

    Raises:
        UsageError: no reader.
        As ``Reader.to_pandas``.
    """
    del ds_info
    from registry.reading import Reader, SupervisedReader
    from registry.reading.views import names_in

    if isinstance(dataset, Reader):
        return dataset.to_pandas()
    if not isinstance(dataset, SupervisedReader):
        raise UsageError(
            f"a DataFrame is made of a reader, not of {type(dataset).__name__}",
            hint="Give what registry.load returns for one split, without batch_size.",
        )
    names = names_in(dataset.keys)
    frame = dataset.reader.to_pandas()
    return frame[[one for name in names for one in frame.columns if one == name or one.startswith(f"{name}/")]]
