"""The cases of slim.json as decoders of ours, and their values as numpy's."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from registry.slim import tfexample_decoder
from support import TESTS

GOLDEN = json.loads((TESTS / "conformance" / "slim" / "slim.json").read_text())
FUNCTIONS = {
    "sum_ab": lambda values: values["a"] + values["b"],
    "stack_ab": lambda values: np.stack([values["a"], values["b"]], 1),
}


def spec_of(written: dict[str, Any]) -> Any:
    given = dict(written)
    kind = given.pop("kind")
    return getattr(tfexample_decoder, f"{kind}Feature")(**given)


def handler_of(written: dict[str, Any]) -> Any:
    given = dict(written)
    kind = given.pop("handler")
    if kind == "LookupTensor":
        return tfexample_decoder.LookupTensor(table=given.pop("vocabulary"), **given)
    if kind == "BackupHandler":
        return tfexample_decoder.BackupHandler(handler_of(given["primary"]), handler_of(given["backup"]))
    if kind == "Callback":
        return tfexample_decoder.ItemHandlerCallback(given["keys"], FUNCTIONS[given["func"]])
    return getattr(tfexample_decoder, kind)(**given)


def decoder_of(case: dict[str, Any]) -> Any:
    handlers = {item: handler_of(written) for item, written in case["items_to_handlers"].items()}
    if case["kind"] == "example":
        features = {key: spec_of(written) for key, written in case["keys_to_features"].items()}
        return tfexample_decoder.TFExampleDecoder(features, handlers)
    context = {key: spec_of(written) for key, written in case["keys_to_context_features"].items()}
    sequence = {key: spec_of(written) for key, written in case["keys_to_sequence_features"].items()}
    return tfexample_decoder.TFSequenceExampleDecoder(context, sequence, handlers)


def record_of(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["serialized_b64"])


def array_of(written: dict[str, Any]) -> Any:
    """The array that an output describes."""
    if written["dtype"] != "bytes":
        return np.array(plain(written["data"]), written["dtype"]).reshape(written["shape"])
    array = np.empty(written["shape"], object)
    array[...] = plain(written["data"])
    return array


def plain(written: Any) -> Any:
    if isinstance(written, list):
        return [plain(one) for one in written]
    if isinstance(written, dict):
        return base64.b64decode(written["b64"])
    return float("nan") if written == "nan" else written
