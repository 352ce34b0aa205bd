"""One sample's image, from what the source has to what is stored.

NOTE [ encode: what is stored ]
  lossless  a JPEG's own coefficients: metadata dropped; progressive, arithmetic and many-scan files made one baseline
            scan. CMYK and YCCK become RGB at quality 100, 4:4:4. What is no JPEG is stored as pixels.
  keep      a JPEG byte for byte. What is no JPEG is stored as pixels.
  jpeg      everything decoded and encoded anew.
  raw       everything decoded and stored as pixels.
Pixels are 8-bit RGB in every mode. An image of more than 8 bits a channel is refused (DeepImageError); transparency, all frames but the
first, other colour spaces and an orientation that was not applied are told as notices.
Whatever the mode: shrinking and turning upright touch only the images that they concern, and a JPEG that cannot be
decoded is an error here, not in training.

NOTE [ encode: what is compared ]
What is stored decodes to the source's pixels. A source's own bytes are checked by themselves (proved by the entropy
walk, or decoded by libjpeg-turbo). What is stored instead of them is checked as well:
  stripped      the walk proves the stripped file; its tables and coded data are the source's. A file that the walk does
                not prove is decoded before and after: equal pixels, or the source's bytes are stored. Under
                check="structure" that is asked only where something is amiss between the markers.
  transcoded,   decoded before and after: equal pixels, or the source's bytes are stored.
  optimized
  rotated       turned back it must be, byte for byte, what the source transcodes to, and that is decoded and compared
                as above; else the image is encoded anew.
  encoded anew, the walk proves the new file, and its size is that of the pixels. The loss is the encoder's, at the
  CMYK          quality asked for.
  raw           the pixels that were decoded are stored as they are.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from fastload._native import core
from fastload.errors import SampleError
from fastload.packing.notices import COLOUR, ORIENTATION
from fastload.packing.options import PackOptions
from fastload.packing.pillow_images import DeepImageError, Pixels
from fastload.packing.pixels import encode_jpeg, read_other, resample, shrunk_size, upright
from fastload.packing.sources.protocol import Item

CMYK_QUALITY = 100
TURNED_QUALITY = 95
"""At least this quality where a turn by EXIF cannot be lossless."""


@dataclass(slots=True)
class Encoded:
    """An image as it will be stored.

    Attributes:
        kind: "jpeg" or "raw".
        data: the JPEG's bytes, or pixels (height, width, 3).
        how: the summary's counts that it adds to.
        format: what the source's bytes were: jpeg, png, ..., pixels.
        warning: what libjpeg-turbo has to say against the JPEG; "" for nothing.
        notices: kinds of what was lost or left undone, for the summary.
        index: where in the JPEG's coded data MCUs start (`core.JpegPreparer.index`), b"" without one; None: it was not asked for yet.
    """

    kind: str
    data: bytes | Pixels
    height: int
    width: int
    how: tuple[str, ...]
    format: str
    warning: str = ""
    index: bytes | None = None
    notices: tuple[str, ...] = ()


class Encoder:
    """Encodes images as `PackOptions` say. Any number of threads may call it."""

    def __init__(self, options: PackOptions) -> None:
        self._options = options
        self._local = threading.local()

    def __call__(self, item: Item) -> Encoded:
        """The stored form of an item's image.

        Raises:
            SampleError: the image cannot be decoded; the message is the bare reason.
            PackError: a library that this image needs is not installed.
        """
        encoded = self._encode(item)
        if self._options.optimize_huffman:
            self._optimize(encoded)
        if encoded.index is None and self._options.index and isinstance(encoded.data, bytes):
            encoded.index = self._preparer().index(encoded.data)
        return encoded

    def _optimize(self, encoded: Encoded) -> None:
        """Gives a JPEG Huffman tables of its own where that makes it smaller: the same coefficients, so the same pixels."""
        # what was transcoded has them; what decodes with warnings is left as it is, so that it goes on telling
        if not isinstance(encoded.data, bytes) or encoded.warning or "transcoded" in encoded.how:
            return
        try:
            smaller = core.jpeg_to_baseline(encoded.data, self._options.max_pixels)
        except SampleError:
            return  # baseline coding cannot hold the same pixels
        if len(smaller) < len(encoded.data) and self._same_pixels(smaller, encoded.data):
            encoded.data, encoded.index = smaller, None
            encoded.how = (*encoded.how, "optimized")

    def _encode(self, item: Item) -> Encoded:
        if isinstance(item.image, np.ndarray):
            encoded = self._pixels(_rgb(item.image), "pixels", gray=item.image.ndim == 2)
            encoded.notices = item.notices
            return encoded
        if item.image[:2] == b"\xff\xd8":
            return self._jpeg(item.image)
        pixels, lost, name = read_other(item.image, self._options.max_pixels, self._options.exif == "apply")
        encoded = self._pixels(pixels, name, gray=False)
        encoded.notices = lost
        return encoded

    def _preparer(self) -> core.JpegPreparer:
        """This thread's own."""
        preparer: core.JpegPreparer | None = getattr(self._local, "preparer", None)
        if preparer is None:
            preparer = self._local.preparer = core.JpegPreparer()
        return preparer

    def _pixels(self, pixels: Pixels, name: str, *, gray: bool) -> Encoded:
        """Pixels of something that was no JPEG, already upright."""
        options = self._options
        height, width = pixels.shape[:2]
        if width * height > options.max_pixels:
            reason = f"{width} x {height} pixels are more than the limit of {options.max_pixels} (FASTLOAD_MAX_PIXELS)"
            raise SampleError(reason, reason=reason)
        how: tuple[str, ...] = ()
        size = shrunk_size(width, height, options.max_side, options.min_side)
        if size is not None:
            pixels, how = resample(pixels, size), ("shrunk",)
        if options.encode == "jpeg":
            return self._encoded(pixels, options.quality, gray, (*how, "reencoded"), name)
        return _raw(pixels, (*how, "raw"), name)

    def _jpeg(self, data: bytes) -> Encoded:
        options = self._options
        found = self._preparer().prepare(data, options.check == "entropy", options.index and options.encode in ("lossless", "keep"))
        if found.precision > 8:
            raise DeepImageError(f"{found.precision} bits")
        encoded = self._jpeg_of_8_bits(data, found)
        if options.exif == "ignore" and found.orientation in range(2, 9):
            encoded.notices = (*encoded.notices, ORIENTATION)
        if found.components == 4 and encoded.how[0] not in ("kept", "cmyk"):
            encoded.notices = (*encoded.notices, COLOUR)
        return encoded

    def _jpeg_of_8_bits(self, data: bytes, found: core.Prepared) -> Encoded:
        options = self._options
        if (
            found.precision != 8
            or found.components not in (1, 3, 4)
            or found.kind in ("lossless", "hierarchical")
            or found.width * found.height > options.max_pixels
        ):
            core.jpeg_header(data, options.max_pixels)  # raises, with the reason
        warning = ""
        if not found.sound:
            count, first = core.jpeg_check(data, options.max_pixels)
            warning = f"{first}" if count else ""
        turn = found.orientation if options.exif == "apply" else 1
        size = shrunk_size(found.width, found.height, options.max_side, options.min_side)
        if options.encode in ("jpeg", "raw") or size is not None:
            return self._decoded(data, found, turn, size, warning)
        if options.encode == "keep":
            return Encoded("jpeg", data, found.height, found.width, ("kept",), "jpeg", warning, found.entropy_index)
        if found.components == 4:
            pixels = upright(self._decode(data), turn)
            return self._encoded(pixels, CMYK_QUALITY, False, ("cmyk",), "jpeg", warning, "4:4:4")
        if turn != 1:
            return self._turned(data, found, turn, warning)
        return self._lossless(data, found, warning)

    def _lossless(self, data: bytes, found: core.Prepared, warning: str) -> Encoded:
        """The same coefficients in the form that decodes best."""
        if found.kind == "progressive" or found.arithmetic or found.scans > 1:
            try:
                stored = core.jpeg_to_baseline(data, self._options.max_pixels)
            except SampleError:
                # Either it cannot be decoded, which this raises, or baseline cannot hold the same pixels: stored as it is.
                core.jpeg_check(data, self._options.max_pixels)
            else:
                if self._same_pixels(stored, data):
                    return Encoded("jpeg", stored, found.height, found.width, ("transcoded",), "jpeg", warning)
        if found.data is None or found.data is data or not (found.sound or self._same_pixels(found.data, data)):
            return Encoded("jpeg", data, found.height, found.width, ("kept",), "jpeg", warning, found.entropy_index)
        # Of the same coded data; of a file with something amiss between its markers none was made, but stripping may have mended that.
        index: bytes | None = found.entropy_index if found.whole else None
        return Encoded("jpeg", found.data, found.height, found.width, ("stripped",), "jpeg", warning, index)

    def _same_pixels(self, stored: bytes, source: bytes) -> bool:
        """Whether a JPEG decodes, and to the pixels of the one that it is made from."""
        try:
            pixels = self._decode(stored)
        except SampleError:
            return False
        return np.array_equal(pixels, self._decode(source))

    def _turned(self, data: bytes, found: core.Prepared, turn: int, warning: str) -> Encoded:
        """Upright by moving coefficients where the sides allow it, else decoded and encoded again."""
        stored = self._moved(data, turn)
        if stored is None:
            pixels = upright(self._decode(data), turn)
            sampling = core.jpeg_scan(data)["sampling"]
            even = all(factors == sampling[0] for factors in sampling)
            return self._encoded(
                pixels,
                max(TURNED_QUALITY, self._options.quality),
                found.components == 1,
                ("reencoded",),
                "jpeg",
                warning,
                "4:4:4" if even else "4:2:0",
            )
        height, width = (found.width, found.height) if turn >= 5 else (found.height, found.width)
        return Encoded("jpeg", stored, height, width, ("rotated",), "jpeg", warning)

    def _moved(self, data: bytes, turn: int) -> bytes | None:
        """The JPEG with its coefficients turned; None where they are not all there again when it is turned back."""
        limit, back = self._options.max_pixels, {6: 8, 8: 6}.get(turn, turn)
        try:
            stored = core.jpeg_transform(data, turn, limit)
            unturned = core.jpeg_to_baseline(data, limit)
            same = core.jpeg_transform(stored, back, limit) == unturned
        except SampleError:
            return None
        return stored if same and self._same_pixels(unturned, data) else None

    def _decoded(self, data: bytes, found: core.Prepared, turn: int, size: tuple[int, int] | None, warning: str) -> Encoded:
        """Decoded, shrunk and turned as asked, then stored as the mode says."""
        options = self._options
        how: tuple[str, ...] = ()
        if size is None:
            pixels = self._decode(data)
        else:
            eighths = core.jpeg_scale((found.width, found.height), size)
            pixels = core.jpeg_decode(data, None, eighths, options.max_pixels)
            # The last scaled row and column may be a fraction of a pixel: the box keeps the picture where it was.
            box = (0.0, 0.0, found.width * eighths / 8, found.height * eighths / 8)
            pixels, how = resample(pixels, size, box), ("shrunk",)
        pixels = upright(pixels, turn)
        if options.encode == "raw":
            return _raw(pixels, (*how, "raw"), "jpeg", warning)
        return self._encoded(pixels, options.quality, found.components == 1, (*how, "reencoded"), "jpeg", warning)

    def _decode(self, data: bytes) -> Pixels:
        pixels: Pixels = core.jpeg_decode(data, None, 8, self._options.max_pixels)
        return pixels

    def _encoded(
        self,
        pixels: Pixels,
        quality: int,
        gray: bool,
        how: tuple[str, ...],
        name: str,
        warning: str = "",
        subsampling: str | None = None,
    ) -> Encoded:
        data = encode_jpeg(pixels, quality, "gray" if gray else subsampling or self._options.subsampling)
        height, width = pixels.shape[:2]
        made = self._preparer().prepare(data, True, self._options.index)
        if not made.sound or (made.height, made.width) != (height, width):
            reason = "libjpeg-turbo encoded it to a file that does not decode to the image's size"
            raise SampleError(reason, reason=reason)
        return Encoded("jpeg", data, height, width, how, name, warning, made.entropy_index if self._options.index else None)


def _rgb(pixels: Pixels) -> Pixels:
    """(height, width, 3) of pixels that may be grey."""
    return np.repeat(pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels


def _raw(pixels: Pixels, how: tuple[str, ...], name: str, warning: str = "") -> Encoded:
    if pixels.nbytes > 0xFFFF0000:
        reason = f"{pixels.shape[1]} x {pixels.shape[0]} raw pixels are more than the 4 GiB that one record may have"
        raise SampleError(f"{reason}; shrink it with max_side", reason=reason)
    return Encoded("raw", np.ascontiguousarray(pixels), pixels.shape[0], pixels.shape[1], how, name, warning)
