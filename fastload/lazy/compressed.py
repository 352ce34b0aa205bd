"""CompressedImage: a JPEG file in memory, shared by all lazy images that were made of it, and the pixels of its boxes.

NOTE [ compressed: one decode for several boxes ]
A decode reads all coded data up to the last row of its box, and inverts the transform of the box alone: of a box with the share `a` of the
image's area it costs about OF_READING + (1 - OF_READING) * a of a whole decode. Two boxes of one image soon cost more than all of it. So a
file counts the cost of the boxes that were asked for. As soon as these would cost more than a whole decode, the whole is decoded, and kept
for as long as images made of the file live; the compressed bytes are dropped then. A program does to each image as it did to those before:
where the boxes of the last files cost more than a whole decode, on average, the first box already takes the whole. Pixels are the same.
"""

from __future__ import annotations

import io
import threading
from typing import NamedTuple

from PIL import JpegImagePlugin

from fastload._native import core
from fastload.lazy.pixels import Array, to_array

OF_READING = 0.25
"""Share of a whole decode that reading the coded data takes. Measured: a box of a quarter of the area takes 0.41 of it."""
_WEIGHT = 0.1
"""Weight of the last file in the mean over files."""


class Region(NamedTuple):
    """A box of an image, in its pixels."""

    x: int
    y: int
    width: int
    height: int


class _Thread(threading.local):
    """Decoder of a thread, and the costs of the files that it decoded last, in whole decodes.

    Attributes:
        decoder: the native decoder.
        mean: mean cost of the boxes that a file was asked for.
        last: cost of the file that was decoded last.
    """

    def __init__(self) -> None:
        self.decoder = core.RegionDecoder()
        self.mean = self.last = 0.0


_thread = _Thread()


class CompressedImage:
    """A JPEG file that the own decoder knows. Any thread may use it.

    Attributes:
        mode: "RGB" or "L", as Pillow opens the file.
        width, height: size at this scale.
        eighths: scale of the inverse transform, as Image.draft asked for: 8, 4, 2 or 1.
    """

    __slots__ = ("_cost", "_data", "_full", "_whole", "eighths", "height", "mode", "width")

    def __init__(self, data: bytes, size: tuple[int, int], mode: str, eighths: int = 8) -> None:
        self._data, self._full = data, size
        self.mode, self.eighths = mode, eighths
        self.width, self.height = (-(-side * eighths // 8) for side in size)
        self._whole: Array | None = None
        self._cost = 0.0

    @staticmethod
    def known(data: bytes, mode: str) -> core.JpegRegions | None:
        """The size and the end of a file whose pixels can be asked for later; None for any other.

        Such a file has this mode, the own decoder knows it, and Pillow loads it without an exception, whatever its coded data are: see
        NOTE [ baseline: files of which libjpeg-turbo raises no error ].
        """
        found = _thread.decoder.open(data)
        return found if found is not None and found.end and found.components == (1 if mode == "L" else 3) else None

    def decode(self, region: Region) -> Array:
        """The pixels of a region: uint8 (height, width, 3), or (height, width) in mode L. They are not to be written to."""
        whole = self._whole
        if whole is None:
            if not self._takes_whole(region):
                pixels = self._decoded(region)
                if pixels is not None:
                    return pixels
            whole = self._decoded(Region(0, 0, self.width, self.height))
            if whole is None:
                whole = self._by_pillow()
            self._whole, self._data = whole, b""
        return whole[region.y : region.y + region.height, region.x : region.x + region.width]

    def _takes_whole(self, region: Region) -> bool:
        """See NOTE [ compressed: one decode for several boxes ]."""
        if self._cost == 0.0:
            _thread.mean += _WEIGHT * (_thread.last - _thread.mean)
        share = region.width * region.height / (self.width * self.height)
        self._cost += OF_READING + (1 - OF_READING) * share
        _thread.last = self._cost
        return self._cost >= 1.0 or _thread.mean > 1.0

    def _decoded(self, region: Region) -> Array | None:
        """The pixels of a region by the own decoder; None where it meets damage."""
        decoder, scale = _thread.decoder, 8 // self.eighths
        decoder.open(self._data)
        x, y = region.x * scale, region.y * scale
        width, height = min(region.width * scale, self._full[0] - x), min(region.height * scale, self._full[1] - y)
        return decoder.decode(x, y, width, height, self.eighths, self.mode == "L")

    def _by_pillow(self) -> Array:
        """All pixels of a file with damaged coded data, of which Pillow and libjpeg-turbo make what they always make."""
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(self._data))
        if self.eighths != 8:  # as draft() leaves it
            codec, _, offset, form = image.tile[0]
            image.tile = [(codec, (0, 0, self.width, self.height), offset, form)]  # type: ignore[list-item]
            image._size, image.decoderconfig = (self.width, self.height), (8 // self.eighths, 0)
        image.load()
        return to_array(image.im)
