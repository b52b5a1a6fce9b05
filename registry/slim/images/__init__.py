"""How do the bytes of an image become an array, as TensorFlow gives it? A file for each format, and one rule for all.

Of Pillow only the decoders of JPEG, GIF and WebP are used, behind ``codec``, which bounds what they are asked for.
"""

from registry.slim.images.codec import MAX_PIXELS, ImageFault
from registry.slim.images.decoding import CHANNELS, decode_encoded, decode_raw, decode_small_images

__all__ = ["CHANNELS", "MAX_PIXELS", "ImageFault", "decode_encoded", "decode_raw", "decode_small_images"]
