"""Laws of patches: for any sizes, margin, files and order, each is read with its own place."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.earth_engine_samples import tiles_of, write_image

from registry.builders.earth_engine.patch_reader import Patches
from registry.order import ReadConfig


@given(st.data())
def test_every_patch_is_read_once_with_its_own_values_and_place(data: st.DataObject) -> None:
    patch = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
    width = data.draw(st.integers(patch[0], 4 * patch[0] + 3))
    height = data.draw(st.integers(patch[1], 4 * patch[1] + 3))
    margin = (data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    bands = {
        name: rng.integers(0, 200, (height, width)).astype(dtype)
        for name, dtype in data.draw(st.sampled_from([{"a": "uint8"}, {"a": "int16", "b": "float32"}])).items()
    }
    count = (width // patch[0]) * (height // patch[1])
    config = data.draw(
        st.sampled_from(
            [
                None,
                ReadConfig(shuffle="global", seed=5),
                ReadConfig(interleave_cycle_length=2, interleave_block_length=1),
            ]
        )
    )
    expected = tiles_of(bands, patch, margin)
    with tempfile.TemporaryDirectory() as folder:
        write_image(
            Path(folder),
            "p",
            bands,
            patch,
            margin=margin,
            native=data.draw(st.booleans()),
            shards=data.draw(st.integers(1, min(count, 4))),
            suffix=data.draw(st.sampled_from([".tfrecord", ".tfrecord.gz"])),
        )
        kernel = [2 * margin[0] + data.draw(st.integers(0, 1)), 2 * margin[1] + data.draw(st.integers(0, 1))]
        patches = Patches.of_files(folder, kernel_size=kernel, margin=True, read_config=config)
        found = list(patches)
        batches = list(patches.batches(3))
    assert sorted(one.index for one in found) == list(range(count))
    for one in found:
        np.testing.assert_array_equal(one.values, np.stack([expected[one.index][name] for name in sorted(bands)]))
        assert (one.row, one.column) == divmod(one.index, width // patch[0])
    assert sorted(np.concatenate([batch.indexes for batch in batches]).tolist()) == list(range(count))
    by_index = {one.index: one for one in found}
    for batch in batches:
        assert batch.bounds is not None
        for place, index in enumerate(batch.indexes.tolist()):
            np.testing.assert_array_equal(np.asarray(batch.values)[place], by_index[index].values)
            assert tuple(batch.bounds[place].tolist()) == by_index[index].bounds
