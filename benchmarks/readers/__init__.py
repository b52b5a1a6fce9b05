"""Lists the readers that benchmarks/reading.py compares: their names in its tables, and their classes."""

from __future__ import annotations

from typing import Final

from benchmarks.readers import others, ours, tensorflow
from benchmarks.readers.peer import Peer

OURS: Final[dict[str, type[Peer]]] = {
    "registry": ours.Registry,
    "record": ours.RegistryRecord,
    "view": ours.RegistryView,
    "off": ours.RegistryOff,
    "kept": ours.RegistryKept,
    "kept view": ours.RegistryKeptView,
}
PEERS: Final[dict[str, type[Peer]]] = {
    **OURS,
    "tf.data": tensorflow.TfData,
    "+unbatch": tensorflow.TfDataUnbatched,
    "+autotune": tensorflow.TfDataAutotuned,
    "+cache": tensorflow.TfDataCached,
    "TFDS": tensorflow.Tfds,
    "TFDS source": tensorflow.TfdsSource,
    "Grain": others.Grain,
    "HF": others.HuggingFace,
    "tfrecord": others.TfRecord,
    "MDS": others.Mds,
    "lance": others.Lance,
    "webdataset": others.WebDataset,
    "take": ours.Take,
    "limit": ours.Limit,
}
