"""Makes data/: the golden datasets, and digests of all that was read from each. It was run once, with the
code of commit cf9a654:

    PYTHONPATH=CHECKOUT_OF_cf9a654 python tests/golden/make_golden.py

The sidecars were written anew for release 0.2. It is run again only to add a dataset, for a new format
version or a new kind of field, and never over those that are there.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from golden import DATA, MAKES, VERSIONS, described, joined, lines, picture
from PIL import Image

PHOTOS = {"ant": 3, "bee": 2, "cow": 2}


def write_pictures() -> None:
    """JPEG files of every form that pack tells apart, and PNG files."""
    forms = [
        {"subsampling": 2},
        {"subsampling": 0, "progressive": True},
        {"subsampling": 1, "optimize": True},
        {"restart_marker_rows": 1},
    ]
    number = 0
    for name, count in PHOTOS.items():
        for folder in ("photos", "jpegs"):
            (DATA / folder / name).mkdir(parents=True)
        for _ in range(count):
            image = Image.fromarray(picture(number, 60 + 9 * number, 130 - 7 * number))
            image = image.convert("L") if number == 5 else image
            data = io.BytesIO()
            image.save(data, "JPEG", quality=80 + number, **forms[number % 4])
            (DATA / "jpegs" / name / f"{number}.jpg").write_bytes(data.getvalue())
            (DATA / "photos" / name / f"{number}.jpg").write_bytes(data.getvalue())
            number += 1
    Image.fromarray(picture(9, 31, 17)).save(DATA / "photos" / "ant" / "9.png")
    Image.fromarray(np.dstack([picture(8, 16, 20), np.full((16, 20), 7, np.uint8)])).save(
        DATA / "photos" / "ant" / "8.png"
    )


def write_files() -> None:
    """Files that pack keeps as they are, and one that it does not: a BMP."""
    for name in ("png", "webp"):
        (DATA / "files" / name).mkdir(parents=True)
    for number, form in enumerate(({}, {"bits": 2})):
        Image.fromarray(picture(number, 31, 17)).quantize(4 if form else 200).save(
            DATA / "files" / "png" / f"{number}.png", **form
        )
    Image.fromarray(np.dstack([picture(8, 16, 20), np.full((16, 20), 7, np.uint8)])).save(
        DATA / "files" / "png" / "2.png"
    )
    for number, form in enumerate(({"quality": 70}, {"lossless": True})):
        Image.fromarray(picture(number, 33, 27)).save(DATA / "files" / "webp" / f"{number + 3}.webp", **form)
    Image.fromarray(picture(3, 9, 8)).save(DATA / "files" / "webp" / "5.bmp")


def main() -> None:
    """Makes what is not there."""
    if not (DATA / "files").exists():
        write_files()
    if not (DATA / "photos").exists():
        write_pictures()
    os.chdir(DATA)
    for name, make in {**MAKES, "joined": joined}.items():
        folder = Path(f"{name}.fl")
        if folder.exists():
            continue
        make(folder)
        for version in VERSIONS.get(name, (None,)):
            text = lines(described(folder, version))
            (DATA / f"{name}{'' if version is None else f'-{version}'}.json").write_text(text)


if __name__ == "__main__":
    main()
