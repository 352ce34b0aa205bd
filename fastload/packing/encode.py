"""Encoder: converts a sample's image from the bytes or pixels of the source to the form that is stored.

NOTE [ encode: what is stored ]
  lossless  a JPEG's own coefficients, without its metadata; progressive, arithmetic and multi-scan files
  become one
            baseline scan. CMYK and YCCK become RGB at quality 100, 4:4:4. Other formats are stored as pixels,
            and so are progressive files that stop before full precision: see NOTE [ jpeg: files that decoders
            smooth ].
  keep      a JPEG byte for byte, and so is any other file that the native decoder makes the same pixels of.
  Others are stored as pixels. dct       as keep, with a JPEG's coefficients in the DCT form, from which its
  file comes back byte for byte. A JPEG of another kind, or
            one that decodes only with warnings, stays as it is; so does one whose form is larger than
            `DCT_MOST` times the file.
  jpeg      every image is decoded and encoded again.
  raw       every image is decoded and stored as pixels.
A damaged JPEG is stored if Pillow reads it without an error, as ImageFolder does. Where Pillow raises one, it
is an error here, not in training. Pixels are 8-bit RGB in every mode. An image of more than 8 bits a channel
is refused (DeepImageError). Notices report transparency, frames after the first, other colour spaces and an
orientation that was not applied. In every mode, shrinking and turning upright change only the images that
need it.

NOTE [ encode: what is compared ]
The stored image decodes to the source's pixels. The source's bytes are checked by themselves: the entropy
walk proves them valid, or libjpeg-turbo decodes them. Bytes that are stored in their place are checked as
well:
  stripped      the walk proves the stripped file; its tables and coded data are the source's. If the walk
  does not prove
                it, both files are decoded: if their pixels differ, the source's bytes are stored. Under
                check="structure" this is done only for files with errors between their markers.
  transcoded,   both files are decoded: if their pixels differ, the source's bytes are stored.
  optimized
  rotated       the image turned back must be, byte for byte, what the source transcodes to, which is decoded
  and
                compared as above; else the image is encoded again.
  encoded again, the walk proves the new file, and its size must be that of the pixels. The encoder loses what
  the CMYK          requested quality implies.
  raw           the decoded pixels are stored unchanged.
  the DCT form  its coefficients are those of the source, and the source's coded data follow from them: NOTE [
  dct: coded data that
                follow from their coefficients ] in csrc/jpeg. That proves the source as the entropy walk
                does, so it is not walked. A progressive file is made again from its form and compared, and
                libjpeg-turbo says whether it is sound.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from fastload._native import core
from fastload.errors import SampleError
from fastload.packing.jpegs import encode_jpeg, resample, shrunk_size
from fastload.packing.options import PackOptions
from fastload.sources.notices import COLOUR, ORIENTATION
from fastload.sources.pixels import DeepImageError, MissingLibrary, Pixels, read_other, upright
from fastload.sources.protocol import Item
from fastload.store.kinds.codecs import BY_ENTRY

CMYK_QUALITY = 100
SMOOTHED = "the progressive JPEG stops before full precision: decoders smooth it, each in its own way"
DCT_MOST = 1.12
"""Largest size of the DCT form, as a multiple of the JPEG's."""
_SCAN = b"\xff\xda"
_SCANS_MOST = 4
"""Scans of a refused JPEG for which Pillow is asked: one a component. Nothing bounds the time that Pillow
takes for many scans."""
TURNED_QUALITY = 95
"""Lowest quality for an image that EXIF turns and that cannot be turned losslessly."""


@dataclass(slots=True)
class Encoded:
    """An image in the form that is stored.

    Attributes:
        kind: name of its codec.
        data: the bytes of the file or of a JPEG's DCT form, or pixels (height, width, 3).
        how: names of the summary's counts that it adds to.
        format: format of the source's bytes: jpeg, png, ..., pixels.
        warning: libjpeg-turbo's first warning on the JPEG; "" if there is none.
        notices: kinds of notices on what was lost or not applied, for the summary.
        index: the entropy index, that is, where MCUs start in the JPEG's coded data
            (`core.JpegPreparer.index`); b"" if it has none, None if it was not computed yet.
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
    """Encodes images by `PackOptions`. Any number of threads may call it."""

    def __init__(self, options: PackOptions) -> None:
        self._options = options
        self._local = threading.local()

    def __call__(self, item: Item) -> Encoded:
        """The stored form of an item's image.

        Raises:
            SampleError: the image cannot be decoded; the message is the reason alone.
            PackError: a library that this image needs is not installed.
        """
        encoded = self._encode(item)
        if self._options.optimize_huffman:
            self._optimize(encoded)
        if self._options.encode == "dct":
            self._made_anew_to_dct(encoded)
        if encoded.index is None and self._options.index and isinstance(encoded.data, bytes):
            encoded.index = self._preparer().index(encoded.data)
        return encoded

    def _optimize(self, encoded: Encoded) -> None:
        """Gives a JPEG optimized Huffman tables if that makes it smaller. The coefficients, and so the
        pixels, stay the same."""
        # transcoded files have them already; a file that decodes with warnings is not changed, so that it
        # still gives them
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
            try:
                return self._jpeg(item.image)
            except SampleError as error:
                if isinstance(error, DeepImageError) or item.image.count(_SCAN) > _SCANS_MOST:
                    raise
                return self._damaged(item.image, error)
        pixels, lost, name = read_other(item.image, self._options.max_pixels, self._options.exif == "apply")
        encoded = self._kept(item.image, pixels, name) or self._pixels(pixels, name, gray=False)
        encoded.notices = lost
        return encoded

    def _kept(self, data: bytes, pixels: Pixels, name: str) -> Encoded | None:
        """A file that is stored as it is; None where it is not, or native threads do not decode it to
        these pixels."""
        height, width = pixels.shape[:2]
        codec = BY_ENTRY.get(core.stored_kind(data))
        if (
            self._options.encode not in ("keep", "dct")
            or codec is None
            or self._size(width, height) is not None
        ):
            return None
        try:
            same = np.array_equal(codec.decoded(data, self._options.max_pixels), pixels)
        except SampleError:
            return None
        return Encoded(codec.name, data, height, width, ("kept",), name, index=b"") if same else None

    def _size(self, width: int, height: int) -> tuple[int, int] | None:
        """The (width, height) that an image is shrunk to; None: it is not."""
        return shrunk_size(width, height, self._options.max_side, self._options.min_side)

    def _damaged(self, data: bytes, error: SampleError) -> Encoded:
        """The pixels that Pillow makes of a JPEG that libjpeg-turbo refuses by itself. Raises that error
        where Pillow refuses it too."""
        try:
            pixels, lost, _ = self._by_pillow(data, error.reason)
        except (SampleError, MissingLibrary):
            raise error from None
        encoded = self._pixels(pixels, "jpeg", gray=False)
        encoded.warning, encoded.notices = error.reason, lost
        return encoded

    def _by_pillow(self, data: bytes, damage: str) -> tuple[Pixels, tuple[str, ...], str]:
        """A damaged JPEG as Pillow reads it; returns what `read_other` does. Raises SampleError with Pillow's
        words where Pillow raises an error."""
        return read_other(
            data,
            self._options.max_pixels,
            self._options.exif == "apply",
            f"{damage}; Pillow does not read it",
        )

    def _made_anew_to_dct(self, encoded: Encoded) -> None:
        """Gives a JPEG that packing has made the DCT form, if it has one."""
        if isinstance(encoded.data, bytes) and not encoded.warning and not {"kept", "dct"} & set(encoded.how):
            form = self._dct_form(encoded.data)
            if form is not None:
                encoded.kind, encoded.data, encoded.index, encoded.how = (
                    "dct",
                    form,
                    b"",
                    (*encoded.how, "dct"),
                )

    def _dct_form(self, jpeg: bytes) -> bytes | None:
        """The DCT form of a JPEG; None for one that stays a JPEG."""
        form, _ = self._coder().encode(jpeg, self._options.max_pixels)
        return form if form is not None and len(form) <= DCT_MOST * len(jpeg) else None

    def _coder(self) -> core.DctCoder:
        """This thread's own DctCoder."""
        coder: core.DctCoder | None = getattr(self._local, "coder", None)
        if coder is None:
            coder = self._local.coder = core.DctCoder()
        return coder

    def _preparer(self) -> core.JpegPreparer:
        """This thread's own JpegPreparer."""
        preparer: core.JpegPreparer | None = getattr(self._local, "preparer", None)
        if preparer is None:
            preparer = self._local.preparer = core.JpegPreparer()
        return preparer

    def _pixels(self, pixels: Pixels, name: str, *, gray: bool) -> Encoded:
        """Stores upright pixels of an image that is no JPEG."""
        options = self._options
        height, width = pixels.shape[:2]
        if width * height > options.max_pixels:
            reason = (
                f"{width} x {height} pixels are more than the limit of {options.max_pixels} "
                "(FASTLOAD_MAX_PIXELS)"
            )
            raise SampleError(reason, reason=reason)
        how: tuple[str, ...] = ()
        size = self._size(width, height)
        if size is not None:
            pixels, how = resample(pixels, size), ("shrunk",)
        if options.encode == "jpeg":
            return self._encoded(pixels, options.quality, gray, (*how, "reencoded"), name)
        return _raw(pixels, (*how, "raw"), name)

    def _jpeg(self, data: bytes) -> Encoded:
        options = self._options
        encoded = None
        if options.encode == "dct":
            found = self._preparer().prepare(data, entropy=False)
            encoded = self._unchanged_to_dct(data, found)
        if encoded is None:
            found = self._preparer().prepare(
                data, options.check == "entropy", options.index and options.encode in ("lossless", "keep")
            )
            if found.precision > 8:
                raise DeepImageError(f"{found.precision} bits")
            encoded = self._jpeg_of_8_bits(data, found)
        if options.exif == "ignore" and found.orientation in range(2, 9):
            encoded.notices = (*encoded.notices, ORIENTATION)
        if found.components == 4 and encoded.how[0] not in ("kept", "cmyk"):
            encoded.notices = (*encoded.notices, COLOUR)
        return encoded

    def _unchanged_to_dct(self, data: bytes, found: core.Prepared) -> Encoded | None:
        """The DCT form of a JPEG that is to be stored as it is, and is proved sound by that; None for all
        others."""
        options = self._options
        turns = options.exif == "apply" and found.orientation != 1
        if turns or not found.whole or self._size(found.width, found.height) is not None:
            return None
        if found.kind == "progressive":  # proved by libjpeg-turbo alone
            return None
        form = self._dct_form(data)
        return None if form is None or not self._coder().sound else _in_dct_form(form, found)

    def _jpeg_of_8_bits(self, data: bytes, found: core.Prepared) -> Encoded:
        options = self._options
        if (
            found.precision != 8
            or found.components not in (1, 3, 4)
            or found.kind in ("lossless", "hierarchical")
            or found.width * found.height > options.max_pixels
        ):
            core.jpeg_header(data, options.max_pixels)  # raises the error with the reason
        warning = ""
        if not found.sound:
            count, first, smoothed = core.jpeg_survey(data, options.max_pixels)
            if count:
                warning = first
                self._by_pillow(data, first)
            elif smoothed:
                warning = SMOOTHED
        turn = found.orientation if options.exif == "apply" else 1
        size = self._size(found.width, found.height)
        if options.encode in ("jpeg", "raw") or size is not None:
            return self._decoded(data, found, turn, size, warning)
        if options.encode == "keep" or (options.encode == "dct" and turn == 1):
            form = (
                self._dct_form(data)
                if options.encode == "dct" and found.kind == "progressive" and not warning
                else None
            )
            if form is not None:
                return _in_dct_form(form, found)
            index = found.entropy_index if options.encode == "keep" else None
            return Encoded("jpeg", data, found.height, found.width, ("kept",), "jpeg", warning, index)
        if found.components == 4:
            pixels = upright(self._decode(data), turn)
            return self._encoded(pixels, CMYK_QUALITY, False, ("cmyk",), "jpeg", warning, "4:4:4")
        if turn != 1:
            return self._turned(data, found, turn, warning)
        if warning is SMOOTHED:
            return _raw(self._decode(data), ("raw",), "jpeg", warning)
        return self._lossless(data, found, warning)

    def _lossless(self, data: bytes, found: core.Prepared, warning: str) -> Encoded:
        """Stores the same coefficients in the form that decodes fastest."""
        if found.kind == "progressive" or found.arithmetic or found.scans > 1:
            try:
                stored = core.jpeg_to_baseline(data, self._options.max_pixels)
            except SampleError:
                # Either the file cannot be decoded, and this raises, or baseline cannot hold the same pixels,
                # and it is stored unchanged.
                core.jpeg_check(data, self._options.max_pixels)
            else:
                if self._same_pixels(stored, data):
                    return Encoded(
                        "jpeg", stored, found.height, found.width, ("transcoded",), "jpeg", warning
                    )
        if (
            found.data is None
            or found.data is data
            or not (found.sound or self._same_pixels(found.data, data))
        ):
            return Encoded(
                "jpeg", data, found.height, found.width, ("kept",), "jpeg", warning, found.entropy_index
            )
        # The index is of the same coded data. A file with errors between its markers has none yet, but
        # stripping may have repaired it.
        index: bytes | None = found.entropy_index if found.whole else None
        return Encoded("jpeg", found.data, found.height, found.width, ("stripped",), "jpeg", warning, index)

    def _same_pixels(self, stored: bytes, source: bytes) -> bool:
        """Returns True if a JPEG decodes to the same pixels as the source from which it was made."""
        try:
            pixels = self._decode(stored)
        except SampleError:
            return False
        return np.array_equal(pixels, self._decode(source))

    def _turned(self, data: bytes, found: core.Prepared, turn: int, warning: str) -> Encoded:
        """Turns a JPEG upright: by moving coefficients if its sides allow that, else by decoding and
        encoding it again."""
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
        """The JPEG with its coefficients turned; None if turning it back does not restore all of them."""
        limit, back = self._options.max_pixels, {6: 8, 8: 6}.get(turn, turn)
        try:
            stored = core.jpeg_transform(data, turn, limit)
            unturned = core.jpeg_to_baseline(data, limit)
            same = core.jpeg_transform(stored, back, limit) == unturned
        except SampleError:
            return None
        return stored if same and self._same_pixels(unturned, data) else None

    def _decoded(
        self, data: bytes, found: core.Prepared, turn: int, size: tuple[int, int] | None, warning: str
    ) -> Encoded:
        """Decodes, shrinks and turns an image as requested, and stores it by the mode."""
        options = self._options
        how: tuple[str, ...] = ()
        if size is None:
            pixels = self._decode(data)
        else:
            eighths = core.jpeg_scale((found.width, found.height), size)
            pixels = core.jpeg_decode(data, None, eighths, options.max_pixels)
            # The last scaled row and column may be a fraction of a pixel; the box keeps the picture in its
            # place.
            box = (0.0, 0.0, found.width * eighths / 8, found.height * eighths / 8)
            pixels, how = resample(pixels, size, box), ("shrunk",)
        pixels = upright(pixels, turn)
        if options.encode == "raw":
            return _raw(pixels, (*how, "raw"), "jpeg", warning)
        return self._encoded(
            pixels, options.quality, found.components == 1, (*how, "reencoded"), "jpeg", warning
        )

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
        return Encoded(
            "jpeg",
            data,
            height,
            width,
            how,
            name,
            warning,
            made.entropy_index if self._options.index else None,
        )


def _rgb(pixels: Pixels) -> Pixels:
    """Pixels as (height, width, 3), from RGB or grey ones."""
    return np.repeat(pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels


def _in_dct_form(form: bytes, found: core.Prepared) -> Encoded:
    return Encoded("dct", form, found.height, found.width, ("dct",), "jpeg", index=b"")


def _raw(pixels: Pixels, how: tuple[str, ...], name: str, warning: str = "") -> Encoded:
    if pixels.nbytes > 0xFFFF0000:
        reason = (
            f"{pixels.shape[1]} x {pixels.shape[0]} raw pixels are more than the 4 GiB that one record "
            "may have"
        )
        raise SampleError(f"{reason}; shrink it with max_side", reason=reason)
    return Encoded("raw", np.ascontiguousarray(pixels), pixels.shape[0], pixels.shape[1], how, name, warning)
