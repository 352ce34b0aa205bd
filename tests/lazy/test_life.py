"""Life of lazy images: their files, their memory, threads, and what a program replaced."""

from __future__ import annotations

import gc
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handles import none_left
from lazy_helpers import both, counted, files, is_lazy, jpeg, lazily
from pictures import photo
from PIL import Image, ImageFile, JpegImagePlugin

from fastload.lazy import compressed, counts
from fastload.lazy.opening import opened_lazily


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A JPEG on the disk."""
    (tmp_path / "image.jpg").write_bytes(files()["420"])
    return tmp_path / "image.jpg"


def test_a_held_image_outlives_its_file(path: Path) -> None:
    """After load() or the first crop the file may go."""
    with Image.open(path) as image:
        expected = image.crop((3, 4, 50, 60)).tobytes()
    with lazily():
        with Image.open(path) as image:
            image.load()
        with open(path, "rb") as file:
            crop = Image.open(file).crop((3, 4, 50, 60))
        assert is_lazy(image)
        path.unlink()
        assert image.crop((3, 4, 50, 60)).tobytes() == expected == crop.tobytes()


def opens(path: Path) -> dict[str, Callable[[], Any]]:
    """Ways to open a file, each with the state that it leaves the file in."""

    def by_path() -> Any:
        image = Image.open(path)
        file = image.fp
        return image.size, image.convert("RGB"), file.closed, image.fp

    def in_block() -> Any:
        with Image.open(path) as image:
            file = image.fp
        try:
            image.load()
        except Exception as error:
            return type(error).__name__, str(error), file.closed
        return image

    def by_file() -> Any:
        with open(path, "rb") as file:
            image = Image.open(file)
            after_open = file.tell()
            return after_open, image.convert("RGB"), file.tell(), file.closed

    def by_memory() -> Any:
        file = io.BytesIO(path.read_bytes())
        image = Image.open(file)
        image.load()
        return image, file.tell(), file.closed, image.fp

    def closed_before() -> Any:
        with open(path, "rb") as file:
            image = Image.open(file)
        return image.convert("RGB")

    def verified() -> Any:
        image = Image.open(path)
        image.verify()
        return image.convert("RGB")

    return {each.__name__: each for each in (by_path, in_block, by_file, by_memory, closed_before, verified)}


@pytest.mark.parametrize("size", ["small", "large", "behind a block", "long rubbish", "truncated"])
@pytest.mark.parametrize("way", ["by_path", "in_block", "by_file", "by_memory", "closed_before", "verified"])
def test_files_are_read_and_closed_alike(path: Path, way: str, size: str) -> None:
    """Whoever opened a file, and how large it is: it is closed, or stands where it stands after Pillow."""
    large = jpeg(photo(2, 300, 400), quality=97)
    data = {
        "small": files()["420"],
        "large": large,
        "behind a block": large[:-2] + bytes(0) + b"\xff\xd9",
        "long rubbish": files()["420"] + bytes(200_000),
        "truncated": large[:70_000],
    }[size]
    path.write_bytes(data)
    plain, lazy = both(opens(path)[way])
    assert lazy == plain


@pytest.mark.parametrize("over", range(-3, 24, 2))
def test_the_end_of_a_file_near_the_end_of_a_block(over: int) -> None:
    """Where Pillow stops reading is kept, too, if a file ends around a multiple of the bytes that it reads
    at a time."""
    data = jpeg(photo(2, 300, 400), quality=97)
    at = data.index(b"\xff\xda")
    missing = (ImageFile.MAXBLOCK * 2 + over - len(data)) % ImageFile.MAXBLOCK
    for _ in range(2):
        comment = min(missing - 4, 65_000)
        if comment >= 0:
            data = data[:2] + b"\xff\xfe" + (comment + 2).to_bytes(2, "big") + b"c" * comment + data[2:]
            missing -= comment + 4
    assert at

    def program() -> Any:
        file = io.BytesIO(data + b"behind")
        image = Image.open(file)
        image.load()
        return file.tell(), image.size

    plain, lazy = both(program)
    assert lazy == plain


def test_nothing_is_left() -> None:
    """Native objects, files and images go with the last reference."""

    def work() -> None:
        with lazily():
            images = [Image.open(io.BytesIO(files()["420"])).crop((i, i, 50, 50)) for i in range(20)]
            assert all(np.asarray(image).shape == (50 - i, 50 - i, 3) for i, image in enumerate(images))

    with none_left():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        del thread
    assert not any(
        isinstance(each, compressed.CompressedImage)
        for each in gc.get_objects()
        if each is not compressed._thread.file
    )


def test_an_image_that_was_looked_at_is_pillows_own() -> None:
    """With its pixels an image has its plain class, and the compressed bytes are gone."""
    with lazily():
        image = Image.open(io.BytesIO(files()["420"]))
        crop = image.crop((0, 0, 9, 9))
        assert is_lazy(image)
        assert is_lazy(crop)
        image.getpixel((0, 0))
        crop.putpixel((0, 0), (1, 2, 3))
        assert type(image) is JpegImagePlugin.JpegImageFile
        assert type(crop) is Image.Image
        assert type(image.im).__name__ == "ImagingCore"
        assert image.getpixel((0, 0)) != crop.getpixel((0, 0)) == (1, 2, 3)


def test_threads_share_images() -> None:
    """Threads that crop, load and look at the same image, and at others, all see Pillow's pixels."""
    data = jpeg(photo(5, 200, 300))
    plain = Image.open(io.BytesIO(data))
    boxes = [(i, 2 * i, 200 + i, 150 + i) for i in range(16)]
    expected = [plain.crop(box).resize((64, 48)).tobytes() for box in boxes]
    wrong: list[int] = []

    def look(image: Image.Image, start: threading.Barrier) -> None:
        start.wait()
        for number, box in enumerate(boxes):
            if image.crop(box).resize((64, 48)).tobytes() != expected[number]:
                wrong.append(number)
        if image.getpixel((7, 9)) != plain.getpixel((7, 9)):
            wrong.append(-1)

    with opened_lazily("exact"):
        for _ in range(10):
            image = Image.open(io.BytesIO(data))
            image.load()  # which Pillow lets only one thread do
            start = threading.Barrier(4)
            threads = [threading.Thread(target=look, args=(image, start)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert wrong == []


def test_only_the_thread_that_asked_is_lazy() -> None:
    """Other threads of the calling process have plain images meanwhile."""
    seen: list[bool] = []

    def look() -> None:
        seen.append(is_lazy(Image.open(io.BytesIO(files()["420"]))))

    with lazily():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        look()
    look()
    assert seen == [False, True, False]
    assert Image.OPEN["JPEG"][0] is JpegImagePlugin.jpeg_factory


def own(self: Any, *args: Any, **options: Any) -> Any:
    """A program's own method."""
    return "a program's own"


@pytest.mark.parametrize(
    "name", ["crop", "resize", "copy", "convert", "transpose", "tobytes", "_new", "thumbnail", "reduce"]
)
def test_a_replaced_method_runs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What a program puts in the place of a method of Pillow's is called, and nothing is lazy."""
    monkeypatch.setattr(Image.Image, name, own)
    with lazily():
        image = Image.open(io.BytesIO(files()["420"]))
        assert not is_lazy(image)
        assert getattr(image, name)() == "a program's own"
    assert f"PIL.Image.Image.{name} was replaced" in str(counts.take())


def test_a_replaced_loader_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So do replaced methods of files, a decoder of a program's own, and another function that opens
    JPEGs."""
    for holder, name in (
        (JpegImagePlugin.JpegImageFile, "load"),
        (ImageFile.ImageFile, "load"),
        (JpegImagePlugin.JpegImageFile, "draft"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(holder, name, own, raising=False)
            with lazily():
                assert getattr(Image.open(io.BytesIO(files()["420"])), name)() == "a program's own"
    with monkeypatch.context() as patched:
        patched.setitem(Image.OPEN, "JPEG", (own, None))
        with lazily():
            assert Image.OPEN["JPEG"] == (own, None)
    with lazily():
        Image.register_open("JPEG", own)  # as a plugin does
    assert Image.OPEN["JPEG"][0] is own
    Image.register_open("JPEG", JpegImagePlugin.jpeg_factory, JpegImagePlugin._accept)


def test_a_subclass_of_a_program_is_its_own() -> None:
    """Images of a class of the program's are not touched."""

    class Mine(JpegImagePlugin.JpegImageFile):
        pass

    with lazily():
        assert type(Mine(io.BytesIO(files()["420"]))) is Mine


def test_counts() -> None:
    """Recipes, arrays, images made whole, and the first line that asked for them."""

    def program() -> None:
        for name in ("420", "grey", "progressive", "cmyk", "truncated"):
            image = Image.open(io.BytesIO(files()[name]))
            if name == "grey":
                image.getbbox()
            elif name == "420":
                np.asarray(image)
            elif name == "progressive":
                image.load()

    found = counted(program)
    assert (found.opened, found.straight) == (4, 1)
    assert dict(found.whole) == {"PIL.Image.getbbox": 1}
    assert f"{Path(__file__).name}:" in found.line
    assert sorted(found.left) == ["damaged, or of a kind that the own decoder does not know", "mode CMYK"]


def test_several_crops_share_a_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten crops of an image cost less than two decodes of it, and from the habit of a program one."""
    decoded: list[int] = []
    real = compressed.CompressedImage._decode

    def noted(file: Any, area: Any, eighths: int) -> bool:
        decoded.append(area.width * area.height)
        return real(file, area, eighths)

    monkeypatch.setattr(compressed.CompressedImage, "_decode", noted)
    monkeypatch.setattr(compressed, "_thread", compressed._Thread())
    data = jpeg(photo(6, 200, 300))
    plain = Image.open(io.BytesIO(data))
    boxes = [(7 * i, 5 * i, 7 * i + 180, 5 * i + 120) for i in range(10)]
    with lazily():
        for _ in range(12):
            decoded.clear()
            image = Image.open(io.BytesIO(data)).convert("RGB")
            for box in boxes:
                assert np.array_equal(np.asarray(image.crop(box)), np.asarray(plain.crop(box)))
            assert decoded[-1] == 200 * 300
            assert len(decoded) <= 2
        assert len(decoded) == 1
        decoded.clear()
        assert np.array_equal(np.asarray(image.crop((3, 3, 9, 9))), np.asarray(plain.crop((3, 3, 9, 9))))
        assert decoded == []
