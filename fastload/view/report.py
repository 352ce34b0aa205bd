"""write_report(): a page as one file, which any browser opens without a server: pictures, facts and draws
are in it."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastload.dataset.drawing import ShownImage, shown_image
from fastload.errors import ArgumentError, SampleError
from fastload.packing.jpegs import encode_jpeg
from fastload.sources.pixels import MissingLibrary
from fastload.store.shard import write_error
from fastload.view.checking import bad_document
from fastload.view.listing import Listing
from fastload.view.pages import Pages, page_file
from fastload.view.png import png
from fastload.view.sample import sample_document
from fastload.view.shown import document
from fastload.view.subject import Subject

SAMPLES = 60
"""Samples of a report."""


@dataclass(frozen=True)
class _ReportSize:
    """Form of the pictures in a report.

    Attributes:
        side: side within which its images are, pixels.
        draws: epochs whose draws are in it.
        quality, sampling: quality and chroma subsampling of its JPEGs.
    """

    side: int
    draws: int
    quality: int
    sampling: str


_FEW = 16
"""Samples up to which a report has the finer form. With either form, one of usual photographs stays below
3 MB."""
_FINE, _SMALL = _ReportSize(384, 4, 90, "4:4:4"), _ReportSize(320, 2, 70, "4:2:0")


def write_report(
    subject: Subject,
    out: str | os.PathLike[str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Writes the page of the first SAMPLES samples for which the settings' condition holds. A file that is
    there is replaced, once the new one is whole.

    Args:
        subject: the dataset.
        out: the file.
        progress: called with the number of samples that are done, and of all.

    Returns:
        The number of samples in the report.

    Raises:
        ArgumentError: no sample is as the condition wants it, or those have no images; or `out` is a folder.
        PackError: `out` cannot be written.
    """
    target = Path(out)
    if target.is_dir():
        raise ArgumentError(f"{target} is a folder; give the name of a file, such as report.html")
    pages = Pages(subject)
    rows = pages.listing.rows(subject.settings.where, 0, SAMPLES)
    if not rows["rows"]:
        why = "the dataset is empty, or the condition is true for none"
        if len(Listing(subject.whole).indices(subject.settings.where)):
            why = "the chosen samples have no images"
        raise ArgumentError(f"there is no sample to report on: {why}")
    indices = [row[0] for row in rows["rows"]]
    form = _FINE if len(indices) <= _FEW else _SMALL
    archive: dict[str, Any] = {}
    for at, index in enumerate(indices):
        before, after = (
            (indices[at - 1] if at else None),
            (indices[at + 1] if at + 1 < len(indices) else None),
        )
        archive |= _sample(subject, pages, index, before, after, form)
        progress(at + 1, len(indices))
    archive["dataset"] = pages.dataset() | {"sides": [form.side], "draws": form.draws}
    archive["rows?start=0&count=200"] = rows | {"total": len(indices)}
    archive["facts"] = pages.facts.document()
    archive["bad"] = bad_document(subject)
    _replace(target, _page(document(archive)))
    return len(indices)


def _sample(
    subject: Subject, pages: Pages, index: int, before: int | None, after: int | None, form: _ReportSize
) -> dict[str, Any]:
    """Answers about one sample, by the paths that the page asks for."""
    try:
        return _stored(subject, pages, index, before, after, form) | _drawn(subject, pages, index, form)
    except SampleError as error:
        sentence = {"error": subject.meet(index, error)}
        return {f"sample/{index}": sentence, f"picture/{index}.png?side={form.side}": sentence}


def _stored(
    subject: Subject, pages: Pages, index: int, before: int | None, after: int | None, form: _ReportSize
) -> dict[str, Any]:
    sample = sample_document(subject, index) | {"before": before, "after": after}
    found: dict[str, Any] = {f"sample/{index}": sample}
    for image in sample["images"]:
        found[f"{image['picture']}side={form.side}"] = _photo(
            shown_image(pages.pictures.pixels(index, form.side, image["name"])), form
        )
    for layer in sample["layers"]:
        if "picture" in layer:
            found[layer["picture"]] = _inline(pages.pictures.layer(index, layer["name"]), "png")
    return found


def _drawn(subject: Subject, pages: Pages, index: int, form: _ReportSize) -> dict[str, Any]:
    seed, epoch = subject.settings.seed, subject.settings.epoch
    draws = pages.draws.document(index, seed, epoch, form.draws)
    found: dict[str, Any] = {f"draws/{index}?seed={seed}&epoch={epoch}&count={form.draws}": draws}
    for draw in draws["draws"]:
        for view, picture in enumerate(draw.get("pictures", ())):
            found[picture["path"]] = _photo(pages.draws.shown(index, seed, draw["epoch"], view), form)
            for layer in picture["layers"]:
                if "picture" in layer:
                    found[layer["picture"]] = _inline(
                        pages.draws.layer(index, seed, draw["epoch"], layer["name"]), "png"
                    )
    return found


def _photo(image: ShownImage, form: _ReportSize) -> str:
    """A picture as a data: address: a JPEG, or a PNG where the TurboJPEG library is missing."""
    pixels = image.pixels if image.pixels.ndim == 3 else np.repeat(image.pixels[:, :, None], 3, axis=2)
    try:
        return _inline(encode_jpeg(pixels, form.quality, form.sampling), "jpeg")
    except MissingLibrary:
        return _inline(png(pixels), "png")


def _inline(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _page(archive: bytes) -> bytes:
    """page.html with its style, its script and the answers inside; its policy allows these alone, by their
    digests."""
    style, script = page_file("page.css"), page_file("page.js")
    own = f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    policy = f"default-src 'none'; img-src data:; {own}; base-uri 'none'; form-action 'none'"
    answers = archive.replace(b"<", b"\\u003c")  # no text of the dataset ends the element
    page = page_file("page.html")
    for old, new in (
        (b'<link rel="icon" href="icon.svg">\n', b""),
        (
            b'<meta charset="utf-8">',
            b'<meta charset="utf-8">\n'
            + f'<meta http-equiv="Content-Security-Policy" content="{policy}">'.encode(),
        ),
        (b'<link rel="stylesheet" href="page.css">', b"<style>" + style + b"</style>"),
        (b'<script src="page.js" defer></script>\n', b""),
        (
            b"</body>",
            b'<script type="application/json" id="archive">'
            + answers
            + b"</script>\n<script>"
            + script
            + b"</script>\n</body>",
        ),
    ):
        page = page.replace(old, new, 1)
    return page


def _digest(content: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}"


def _replace(target: Path, content: bytes) -> None:
    """Writes a file beside its place and puts it there. Raises PackError."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(content)
        temporary.chmod(0o644)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise write_error(target, len(content), error, "give another place for the report") from error
