"""File objects of a program's own: a lazy image makes only those calls that Pillow makes, and leaves them
where Pillow leaves them."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lazy_helpers import both, files, is_lazy, lazily
from PIL import Image, ImageFile

ERRORS = (
    OSError,
    ValueError,
    TypeError,
    IndexError,
    struct.error,
    EOFError,
    KeyError,
    AttributeError,
    io.UnsupportedOperation,
    MemoryError,
)


class Told:
    """A file object with no more than read(size) and seek(position), which notes its calls.

    Args:
        data: its bytes.
        most: bytes that it gives at a time.
        fails: number of a call that raises, and the exception; -1 for none.
        kind: type of what read() returns.
    """

    def __init__(
        self, data: bytes, most: int = 1 << 30, fails: tuple[int, Any] = (-1, None), kind: Any = bytes
    ) -> None:
        self._inner, self._most, self._fails, self._kind = io.BytesIO(data), most, fails, kind
        self.calls: list[Any] = []

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if len(self.calls) - 1 == self._fails[0]:
            raise self._fails[1]("no")

    def read(self, size: int) -> Any:
        self._note("read", size)
        return self._kind(self._inner.read(min(size, self._most)))

    def seek(self, position: int) -> Any:
        self._note("seek", position)
        return self._inner.seek(position)

    def stands(self) -> int:
        return self._inner.tell()


class WithTell(Told):
    """One with a tell(), which refuses; it takes `whence`, and refuses all but 0."""

    def tell(self) -> int:
        self._note("tell")
        raise io.UnsupportedOperation("tell")

    def seek(self, position: int, whence: int = 0) -> Any:
        if whence:
            raise ValueError("whence")
        return super().seek(position)


class Ignoring(Told):
    """One that passes `whence` over."""

    def seek(self, position: int, whence: int = 0) -> Any:
        return super().seek(position)

    def tell(self) -> int:
        return 7


class WithoutSeek:
    """One that cannot seek: Pillow reads all of it when it opens it."""

    def __init__(self, data: bytes) -> None:
        self.read = io.BytesIO(data).read


def bytes_of(array: Any) -> Any:
    """The bytes of an array; of one that holds the image itself, which NumPy makes after AttributeError, the
    class of that."""
    return array.tobytes() if array.dtype != object else type(array.item())


LOOKS: dict[str, Callable[[Any], Any]] = {
    "load": lambda image: image.load() is not None,
    "crop": lambda image: image.crop((3, 4, 50, 60)).resize((20, 20)),
    "asarray": lambda image: bytes_of(np.asarray(image)),
    "tobytes": lambda image: image.tobytes(),
    "pixel": lambda image: image.getpixel((0, 0)),
    "copy": lambda image: image.copy(),
    "equal": lambda image: (image == 1, image == image.copy()),
    "draft": lambda image: image.draft("L", (20, 20)),
}


def run(
    make: Callable[[], Any],
    looks: list[str],
    block: int = 65536,
    between: Callable[[Any], None] = lambda file: None,
) -> Any:
    """What a program sees that opens a file object and looks at the image: values, exceptions, the file
    object after each, its calls."""
    file = make()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ImageFile, "MAXBLOCK", block)
        image = Image.open(file)
    seen = []
    between(file)
    for look in looks:
        try:
            value = LOOKS[look](image)
        except Exception as error:
            value = type(error).__name__, str(error)
        seen.append((value, stands(file), image.fp is file, image.fp is None))
    calls = list(getattr(file, "calls", ()))
    try:
        image.load()
    except Exception as error:
        image = type(error).__name__, str(error)
    return seen, image, calls


def stands(file: Any) -> Any:
    """Where a file object stands."""
    if getattr(file, "closed", False):
        return "closed"
    return file.stands() if isinstance(file, Told) else file.tell() if hasattr(file, "tell") else None


undamaged = st.sampled_from(sorted(set(files()) - {"empty", "no jpeg", "damaged"}))
some_looks = st.lists(st.sampled_from(sorted(LOOKS)), min_size=1, max_size=3)


@pytest.mark.parametrize("kind", [Told, WithTell, Ignoring])
@given(undamaged, some_looks, st.sampled_from([65536, 65536, 4096, 1000, 300, 64, 7]))
@settings(max_examples=120, print_blob=True)
def test_the_calls_are_pillows(kind: type, name: str, looks: list[str], block: int) -> None:
    """Whatever the file, and however many blocks it has, results, positions and read bytes are equal.

    In one block the calls are the same one by one. In more, Pillow may stop before a block that is read here,
    and is given back.
    """
    parts = 3 if block > len(files()[name]) else 2
    plain, lazy = both(lambda: run(lambda: kind(files()[name]), looks, block)[:parts])
    assert lazy == plain


@given(undamaged, some_looks, st.integers(1, 4000), st.sampled_from([bytes, bytearray, memoryview]))
@settings(max_examples=150, print_blob=True)
def test_short_reads_and_other_bytes(name: str, looks: list[str], most: int, kind: Any) -> None:
    """A file object may give less than it is asked for, and other types of bytes."""
    plain, lazy = both(lambda: run(lambda: Told(files()[name], most, kind=kind), looks)[:2])
    assert lazy == plain


@example("420", ["asarray"], 39, AttributeError, 65536)  # in NumPy's question for the pixels
@example("marker inside", ["asarray"], 44, OSError, 1000)  # in the seek that gives back what was read ahead
@given(undamaged, some_looks, st.integers(0, 400), st.sampled_from(ERRORS), st.sampled_from([65536, 1000]))
@settings(max_examples=250, print_blob=True)
def test_a_call_that_fails(name: str, looks: list[str], number: int, error: Any, block: int) -> None:
    """Any exception that the file object raises, once, in any call: the program gets it where Pillow lets
    it pass; the rest goes on."""
    plain, lazy = both(lambda: run(lambda: Told(files()[name], fails=(number, error)), looks, block)[:2])
    assert lazy == plain


def opened_calls(name: str) -> int:
    """Calls that opening alone makes."""
    file = Told(files()[name])
    Image.open(file)
    return len(file.calls)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("behind", range(4))
def test_a_call_of_load_that_fails(error: Any, behind: int) -> None:
    """The seek, the first read, and the next: each is made once, and raises once; a second look at the
    image has Pillow's outcome."""
    for name in ("420", "truncated", "progressive", "trailing"):
        number = opened_calls(name) + behind
        plain, lazy = both(
            lambda name=name, number=number: run(
                lambda: Told(files()[name], fails=(number, error)), ["tobytes", "load"]
            )
        )
        assert lazy == plain


def test_such_files_are_lazy() -> None:
    """A file object that has no more than Pillow needs makes a lazy image all the same."""
    for kind in (Told, WithTell, Ignoring, WithoutSeek):
        for name in ("420", "grey", "tiny"):  # without EXIF data, for which Pillow asks tell()
            with lazily():
                image = Image.open(kind(files()[name]))  # type: ignore[arg-type]
                image.load()
                assert is_lazy(image)
                assert (
                    image.crop((0, 0, 1, 1)).tobytes()
                    == Image.open(io.BytesIO(files()[name])).crop((0, 0, 1, 1)).tobytes()
                )


CHANGES: dict[str, Callable[[Any], Any]] = {
    "closed": lambda file: file.close(),
    "moved": lambda file: file.seek(100),
    "at the end": lambda file: file.seek(0, 2),
    "another image": lambda file: (file.seek(0), file.truncate(), file.write(files()["444"])),
    "a grey one": lambda file: (file.seek(0), file.truncate(), file.write(files()["grey"])),
    "a smaller one": lambda file: (file.seek(0), file.truncate(), file.write(files()["tiny"])),
    "no image": lambda file: (file.seek(0), file.write(b"no image")),
    "nothing": lambda file: file.truncate(0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("look", ["load", "crop", "tobytes", "equal"])
def test_a_file_that_changes_between(change: str, look: str) -> None:
    """Closed, moved, overwritten or emptied between open and load."""

    def between(file: Any) -> None:
        CHANGES[change](file)

    plain, lazy = both(lambda: run(lambda: io.BytesIO(files()["420"]), [look, "tobytes"], between=between))
    assert lazy == plain


@pytest.mark.parametrize("formats", [None, ["JPEG"], ("png", "jpeg"), ["PNG"], "JPEG", []])
@pytest.mark.parametrize("at", [0, 5, 10**6])
def test_formats_and_positions(formats: Any, at: int) -> None:
    """A file object that stands elsewhere is opened from its begin, and `formats` chooses."""

    def program() -> Any:
        file = io.BytesIO(files()["420"] + b"behind")
        file.seek(at)
        try:
            image = Image.open(file, formats=formats)
        except Exception as error:
            return type(error).__name__, file.tell()
        return image.crop((1, 1, 9, 9)), file.tell(), image

    plain, lazy = both(program)
    assert lazy == plain


@pytest.mark.parametrize("name", ["420", "progressive", "truncated"])
@pytest.mark.parametrize("buffering", [-1, 0, 16])
def test_a_file_of_the_disk(tmp_path: Path, name: str, buffering: int) -> None:
    """Buffered or not, it stands where it stands after Pillow."""
    path = tmp_path / "image.jpg"
    path.write_bytes(files()[name])

    def program() -> Any:
        with open(path, "rb", buffering=buffering) as file:
            return run(lambda: file, ["tobytes"])

    plain, lazy = both(program)
    assert lazy == plain


@pytest.mark.parametrize("block", [300, 1000])
def test_what_follows_an_image_is_not_read(block: int) -> None:
    """Of a file with a thumbnail in its header and a film behind it, no block is read that Pillow does not
    read, nor of one that stays Pillow's for its kind or for what is wrong with it."""
    exif, out = Image.Exif(), io.BytesIO()
    exif[0x9286] = files()["tiny"]
    Image.open(io.BytesIO(files()["420"])).save(out, "JPEG", exif=exif, quality=100)
    for data in (
        out.getvalue(),
        *(files()[name] for name in ("420", "grey", "restarts", "progressive", "cmyk")),
    ):
        plain, lazy = both(lambda data=data: run(lambda: Told(data + bytes(100_000)), ["tobytes"], block))
        assert lazy == plain
