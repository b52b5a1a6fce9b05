"""Writes the records of benchmarks/cluster.py with TFDS on Apache Beam's DirectRunner.

TensorFlow, TFDS and Beam exclude packages that the registry needs, so this script imports nothing of the repository
and has an environment of its own, which benchmarks/cluster.py looks for:

    python3.11 -m venv .venv-beam
    .venv-beam/bin/pip install apache-beam==2.77.0 tensorflow-cpu==2.21.0 tensorflow-datasets==4.9.10

Its inputs are the pieces of the build; each generates its records on a worker of Beam. TFDS sorts records by the hash
of their keys, and writes TFRecord shards with the same records in the same order as the registry. It computes no
digests, and registers nothing. The order of the features in a record, and so the sha256 of a shard, changes from one
process to another, because TFDS serializes protocol buffers without the option that makes it deterministic.

With one worker, Beam runs in this process; otherwise in that many processes. Its DirectRunner downloads Prism, a
program that runs pipelines. If it cannot, it uses FnApiRunner, a part of the Python package. "runner" names the one
that ran. The seconds exclude the imports of this process, but include those of worker processes.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import random
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow  # noqa: F401, ICN001 (TFDS imports it when it is first used, which is after the time has begun)
import tensorflow_datasets as tfds
from apache_beam.options.pipeline_options import PipelineOptions

_SWITCH = "apache_beam.runners.direct.direct_runner"  # the module that says which runner it has chosen


class Texts(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc] # its types are not installed where types are checked
    """Examples of a number and a text, as in benchmarks/cluster.py."""

    VERSION = tfds.core.Version("1.0.0")
    num_examples = 0
    num_pieces = 1
    num_bytes = 1000

    def _info(self) -> Any:
        features = tfds.features.FeaturesDict({"number": np.int64, "text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:  # noqa: ARG002 (nothing is downloaded)
        size = -(-self.num_examples // self.num_pieces)
        return {"train": self._generate_examples(size)}

    def _generate_examples(self, size: int) -> Any:
        firsts = [place * size for place in range(self.num_pieces)]
        return (
            beam.Create(firsts)
            | beam.Reshuffle()  # otherwise one worker generates everything
            | beam.FlatMap(generate, size, self.num_examples, self.num_bytes)
        )


def generate(first: int, size: int, num_examples: int, num_bytes: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The examples of a piece."""
    letters = base64.b64encode(random.Random(0).randbytes(3 * 2**18)).decode()  # noqa: S311 (no secret)
    for number in range(first, min(first + size, num_examples)):
        start = number * 7919 % (len(letters) - num_bytes)
        yield number, {"number": number, "text": letters[start : start + num_bytes]}


class Messages(logging.Handler):
    """Keeps what Beam logs about its choice of a runner."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Add a message."""
        self.text += record.getMessage() + "\n"

    @property
    def runner(self) -> str:
        """The runner that was chosen."""
        is_prism = "with PrismRunner" in self.text and "alling back to DirectRunner" not in self.text
        return "Prism" if is_prism else "FnApiRunner"


def main() -> None:
    """Write the dataset into a folder, and print seconds and runner as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, required=True)
    parser.add_argument("--pieces", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True, help="of the text of an example")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", required=True)
    arguments = parser.parse_args()
    Texts.num_examples, Texts.num_pieces, Texts.num_bytes = arguments.examples, arguments.pieces, arguments.bytes
    options = [f"--direct_num_workers={arguments.workers}"]
    options += ["--direct_running_mode=multi_processing"] if arguments.workers > 1 else []
    messages = Messages()
    logging.getLogger(_SWITCH).addHandler(messages)
    logging.getLogger(_SWITCH).setLevel(logging.INFO)
    started = time.perf_counter()
    config = tfds.download.DownloadConfig(beam_runner="DirectRunner", beam_options=PipelineOptions(options))
    Texts(data_dir=arguments.folder).download_and_prepare(download_config=config)
    print(json.dumps({"seconds": time.perf_counter() - started, "runner": messages.runner}))


if __name__ == "__main__":
    main()
