"""Image files: reads PNG and the headers of JPEG, writes PNG, and runs the codecs of Pillow and simplejpeg.

    bytes -> Picture (format, size, header) -> pixels of 8 or 16 bits -> channels
    array -> PNG with the same bytes on every machine

``registry.features`` stores images with it, ``registry.slim`` decodes them like TensorFlow, and ``registry.intake``
recognizes them. ``png`` and ``deflate`` need no library; ``pillow`` imports Pillow when it is needed.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.images.pictures import (
        JPEG_SIGNATURE,
        Picture,
        PictureError,
        as_channels,
        as_depth,
        convert_samples,
        decode_picture,
        encode_jpeg,
        jpeg_library,
        jpeg_versions,
        mix,
        read_jpeg_header,
        read_picture,
        reduce_pixels,
        to_grey,
    )
    from registry.images.pillow import has_pillow, import_pillow, run_codec, take_pixels
    from registry.images.png import (
        Png,
        PngError,
        describe_png,
        encode_png,
        inflate_rows,
        read_chunks,
        read_png,
        undo_filters,
    )

__all__ = [
    "JPEG_SIGNATURE", "Picture", "PictureError", "Png", "PngError", "as_channels", "as_depth", "convert_samples",
    "decode_picture", "describe_png", "encode_jpeg", "encode_png", "has_pillow", "import_pillow", "inflate_rows",
    "jpeg_library", "jpeg_versions", "mix", "read_chunks", "read_jpeg_header", "read_picture", "read_png",
    "reduce_pixels", "run_codec", "take_pixels", "to_grey", "undo_filters",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "pictures": (
            "JPEG_SIGNATURE Picture PictureError as_channels as_depth convert_samples decode_picture encode_jpeg "
            "jpeg_library jpeg_versions mix read_jpeg_header read_picture reduce_pixels to_grey"
        ),
        "pillow": "has_pillow import_pillow run_codec take_pixels",
        "png": "Png PngError describe_png encode_png inflate_rows read_chunks read_png undo_filters",
    },
)
