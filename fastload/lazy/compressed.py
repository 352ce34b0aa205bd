"""CompressedImage: a JPEG file in memory, shared by all lazy images that were made of it, and the pixels of
its regions.

NOTE [ compressed: one decode for several regions ]
A decode reads all coded data up to the last row of its region, and inverts the transform of the region alone:
of a region with the share `a` of the image's area it costs about OF_READING + (1 - OF_READING) * a of a whole
decode. Two regions soon cost more than that. With an entropy index it reads the coded data of the region
alone, and costs its share (NOTE [ indexes: by a file's bytes ]); so does one of a form that a cache has
(NOTE [ opened forms: time that nobody wants ]).
1. A thread's decoder keeps the area that it decoded last. A region within it is there already.
2. A file counts the cost of the regions that were asked for. As soon as these would cost more than a whole
   decode, the whole is decoded.
3. A program does to each image as it did to those before: where the regions of the last files cost more than
   a whole decode, on average, the first region already takes the whole.
4. A whole that has to be decoded a second time, because the thread has looked at another file between, is
   kept as long as images of the file live, and the compressed bytes are dropped.
Pixels are the same in every case.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from fastload._native import core
from fastload.common.forks import call_in_children
from fastload.errors import SampleError
from fastload.lazy import indexes, resizing
from fastload.lazy.indexes import FileIndex
from fastload.lazy.pixels import Array, decoded_by_pillow, to_array
from fastload.lazy.resampling import FILTERS, pillow_order
from fastload.lazy.resizing import WRITTEN, Resample, Sink, options_of

OF_READING = 0.25
"""Share of a whole decode that reading the coded data takes. Measured: a region of a quarter of the area
takes 0.41 of it."""
_WEIGHT = 0.1
"""Weight of the last file in the mean over files."""
_END = b"\xff\xd9"
"""End marker of a JPEG."""


class Region(NamedTuple):
    """A box of an image, in its pixels."""

    x: int
    y: int
    width: int
    height: int

    def has(self, other: Region) -> bool:
        """Returns True if another region lies within this one."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )


_NOWHERE = Region(0, 0, 0, 0)


class _Thread(threading.local):
    """Decoder of a thread, and the costs of the files that it decoded last, in whole decodes.

    Attributes:
        decoder: the native decoder.
        file, area: the file whose pixels it holds, and the area.
        mean: mean cost of the regions that a file was asked for.
        last: cost of the file that was decoded last.
    """

    def __init__(self) -> None:
        self.decoder = core.RegionDecoder()
        self.file: CompressedImage | None = None
        self.area = _NOWHERE
        self.mean = self.last = 0.0


_thread = _Thread()


def _begin_anew() -> None:
    """Forgets the parent's files in a forked child: a worker learns what its own program does."""
    _thread.file, _thread.mean, _thread.last = None, 0.0, 0.0


call_in_children(_begin_anew)


class Known(NamedTuple):
    """A file whose pixels can be asked for later: its size, and its bytes with the end marker."""

    width: int
    height: int
    end: int


class CompressedImage:
    """A JPEG file that the own decoder knows. Any thread may use it.

    Attributes:
        mode: "RGB" or "L", as Pillow opens the file.
        width, height: size at this scale.
        eighths: scale of the inverse transform, as Image.draft asked for: 8, 4, 2 or 1.
        fast: the inverse transform may scale what a bilinear or bicubic resize makes half as large, or
            smaller.

    Args:
        end: bytes of the file, its end marker included; 0: its entropy index is not asked for.
    """

    __slots__ = (
        "_cost",
        "_data",
        "_end",
        "_full",
        "_index",
        "_lock",
        "_shared_indexes",
        "_whole",
        "_wholes",
        "eighths",
        "fast",
        "height",
        "mode",
        "width",
    )

    def __init__(
        self,
        data: bytes,
        size: tuple[int, int],
        mode: str,
        eighths: int = 8,
        fast: bool = False,
        end: int = 0,
    ) -> None:
        self._data, self._full, self._end = data, size, end
        self._shared_indexes = indexes.in_use() if end else None
        self._index: FileIndex | None = None  # None: not asked for yet
        self.mode, self.eighths, self.fast = mode, eighths, fast
        self.width, self.height = (-(-side * eighths // 8) for side in size)
        self._whole: Array | None = None
        self._wholes = 0  # times that the whole was decoded
        self._cost = 0.0
        self._lock = threading.RLock()  # held by the one thread that uses the file

    @staticmethod
    def known(data: bytes, mode: str) -> Known | None:
        """The size and the end of a file whose pixels can be asked for later; None for any other.

        Such a file has this mode, the own decoder knows it, and Pillow loads it without an exception,
        whatever its coded data are: see NOTE [ baseline: files of which libjpeg-turbo raises no error ].
        """
        decoder = _thread.decoder
        _thread.file = None
        try:
            width, height = decoder.open(data)
        except SampleError:
            return None
        end = decoder.end
        return Known(width, height, end) if end and decoder.components == (1 if mode == "L" else 3) else None

    @staticmethod
    def goes_on(data: bytes, mode: str) -> bool:
        """Returns True if a file that begins so may be known: its header is incomplete, or only coded data
        have come behind it."""
        begun = data.removesuffix(b"\xff")
        try:
            _thread.decoder.open(begun + _END)
        except SampleError:
            return True
        found = CompressedImage.known(begun + _END, mode)
        return found is not None and found.end == len(begun) + len(_END)

    def pixels(
        self, region: Region, hflip: bool = False, vflip: bool = False, sink: Sink | None = None
    ) -> Array:
        """The pixels of a region: uint8 (height, width, 3), or (height, width) in mode L. They are not to
        be written to. With a sink they may have been written to that: WRITTEN."""
        with self._lock:
            return self._pixels(region, hflip, vflip, sink)

    def _pixels(
        self, region: Region, hflip: bool = False, vflip: bool = False, sink: Sink | None = None
    ) -> Array:
        at = self._held(region)
        if at is None:
            found = self._kept()[region.y : region.y + region.height, region.x : region.x + region.width]
            return found[:: -1 if vflip else 1, :: -1 if hflip else 1]
        return self._formed(
            _thread.decoder.pixels(
                (*at, region.width, region.height), hflip=hflip, vflip=vflip, **options_of(sink)
            ),
            sink,
        )

    def resampled(self, region: Region, step: Resample, sink: Sink | None = None) -> Array | None:
        """The pixels of a region after a native resample; None where only Pillow itself does that. With a
        sink they are written to that: WRITTEN."""
        with self._lock:
            return self._resampled(region, step, sink)

    def _resampled(self, region: Region, step: Resample, sink: Sink | None) -> Array | None:
        order = pillow_order()
        if order is None or step.filter not in FILTERS:
            return None
        if (
            self.fast
            and self._whole is None
            and not self._shared
            and self.eighths == 8
            and step.filter in resizing.FAST_FILTERS
        ):
            found = self._scaled(region, step, order, sink)
            if found is not None:
                return found
        filter, size = FILTERS[step.filter], (region.width, region.height)
        x, y, width, height = core.resize_exact_reads(size, step.box, step.to, filter, window=step.window)
        at = self._held(Region(region.x + x, region.y + y, width, height))
        if at is None:
            return resizing.resample(self._pixels(region), step, sink)
        return self._run(step, step.box, (at[0] - x, at[1] - y, *size), order, sink)

    def _run(
        self,
        step: Resample,
        box: tuple[float, ...],
        image: tuple[int, ...] | None,
        order: str,
        sink: Sink | None,
    ) -> Array:
        """A resample of a box of what this thread's decoder holds."""
        filter = FILTERS[step.filter]
        made = _thread.decoder.resample(
            box,
            step.to,
            filter,
            image=image,
            window=step.window,
            hflip=step.hflip,
            vflip=step.vflip,
            order=order,
            **options_of(sink),
        )
        return self._formed(made, sink)

    def _formed(self, pixels: Array, sink: Sink | None = None) -> Array:
        if sink is not None:
            return WRITTEN
        return pixels if self.mode == "RGB" else pixels.reshape(pixels.shape[:2])

    def _kept(self) -> Array:
        assert self._whole is not None
        return self._whole

    def _held(self, region: Region) -> tuple[int, int] | None:
        """The place of a region in the area that this thread's decoder holds by then; None: all pixels are
        kept here instead."""
        thread = _thread
        if self._whole is not None:
            return None
        whole = self._takes_whole(region)
        if thread.file is not self or not thread.area.has(region):
            area = Region(0, 0, self.width, self.height) if whole else region
            self._wholes += whole
            if not self._decode(self._in_full(area), self.eighths):
                self._whole, self._data = self._by_pillow(), b""
                return None
            if whole and self._wholes > 1:
                self._whole, self._data = self._formed(thread.decoder.pixels()), b""
                return None
            thread.file, thread.area = self, area
        return region.x - thread.area.x, region.y - thread.area.y

    def _takes_whole(self, region: Region) -> bool:
        """Counts the cost of a region. See NOTE [ compressed: one decode for several regions ]."""
        if self._cost == 0.0:
            _thread.mean += _WEIGHT * (_thread.last - _thread.mean)
        share = region.width * region.height / (self.width * self.height)
        index = self._indexed()
        reading = 0.0 if index.known or index.form else OF_READING
        self._cost += reading + (1 - reading) * share
        _thread.last = self._cost
        return self._shared

    @property
    def _shared(self) -> bool:
        """True if the whole is decoded, or is worth it, and so costs less than a scaled decode of one more
        region."""
        return self._cost > 1.0 or _thread.mean > 1.0

    def _indexed(self) -> FileIndex:
        """The entropy index of the file."""
        if self._index is None:
            self._index = FileIndex(self._shared_indexes, self._data, self._end)
        return self._index

    def _decode(self, area: Region, eighths: int) -> bool:
        """Decodes an area of the whole file into this thread's decoder. False: the own decoder meets
        damage in the file."""
        decoder = _thread.decoder
        _thread.file = None
        index = self._indexed()
        if index.form and self._decode_form(index.form, area, eighths):
            return True
        decoder.open(self._data)
        try:
            decoder.decode(area, eighths, self.mode == "L", index.known, index.learns)
        except SampleError:
            return False
        if decoder.fell_back:
            return False
        if index.learns:
            index.learn(decoder)
        return True

    def _decode_form(self, form: bytes, area: Region, eighths: int) -> bool:
        """As _decode(), of the file's form. False: the form is damaged."""
        decoder = _thread.decoder
        try:
            if decoder.open(form) != self._full:
                return False
            decoder.decode(area, eighths, self.mode == "L")
        except SampleError:
            return False
        return not decoder.fell_back

    def _in_full(self, area: Region) -> Region:
        """An area of the image at this scale, in pixels of the file."""
        scale = 8 // self.eighths
        x, y = area.x * scale, area.y * scale
        return Region(
            x, y, min(area.width * scale, self._full[0] - x), min(area.height * scale, self._full[1] - y)
        )

    def _scaled(self, region: Region, step: Resample, order: str, sink: Sink | None) -> Array | None:
        """A resample of a region that is scaled in the inverse transform; None where that is not small
        enough, or the file damaged."""
        left, top, right, bottom = step.box
        eighths = core.jpeg_scale((max(1, int(right - left)), max(1, int(bottom - top))), step.to)
        if eighths == 8 or not self._decode(region, eighths):
            return None
        self._takes_whole(region)
        scale = eighths / 8
        x, y = region.x * eighths % 8 / 8, region.y * eighths % 8 / 8
        width, height = (
            -(-(at + side) * eighths // 8) - at * eighths // 8
            for at, side in zip(region[:2], region[2:], strict=True)
        )
        box = (
            x + left * scale,
            y + top * scale,
            min(x + right * scale, width),
            min(y + bottom * scale, height),
        )
        return self._run(step, box, None, order, sink)

    def _by_pillow(self) -> Array:
        """All pixels of a file with damaged coded data, of which Pillow and libjpeg-turbo make what they
        always make."""
        return to_array(
            decoded_by_pillow(self._data, (self.width, self.height), self.mode, 8 // self.eighths)
        )
