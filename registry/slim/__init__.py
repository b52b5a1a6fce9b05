"""The data layer of TF-Slim without TensorFlow: datasets, decoders, item handlers and data providers, in NumPy.

    data sources -> reader -> records -> decoder (features -> item handlers) -> items -> provider

Modules have the names of ``tf_slim.data``, so that code written for TF-Slim needs only another import:
``from registry import slim``, then ``slim.tfexample_decoder.TFExampleDecoder`` or ``slim.TFExampleDecoder``. The only
difference is that ``slim.prefetch_queue`` is a function; ``slim.prefetch_queue.prefetch_queue`` is the same function.
"""

from registry.errors import OutOfRangeError
from registry.slim import tfexample_decoder
from registry.slim.data_decoder import DataDecoder
from registry.slim.data_files import DataFile, get_data_files
from registry.slim.data_provider import DataProvider
from registry.slim.dataset import Dataset
from registry.slim.dataset_data_provider import DatasetDataProvider
from registry.slim.image_handler import decode_image
from registry.slim.parallel_reader import ParallelReader, parallel_read, single_pass_read
from registry.slim.prefetching import PrefetchQueue, prefetch_queue
from registry.slim.readers import TextLineReader, TFRecordReader
from registry.slim.tfexample_decoder import *  # noqa: F403 (re-export every name in its __all__)

__all__ = [
    "DataDecoder",
    "DataFile",
    "DataProvider",
    "Dataset",
    "DatasetDataProvider",
    "OutOfRangeError",
    "ParallelReader",
    "PrefetchQueue",
    "TFRecordReader",
    "TextLineReader",
    "decode_image",
    "get_data_files",
    "parallel_read",
    "prefetch_queue",
    "single_pass_read",
]
__all__ += tfexample_decoder.__all__
