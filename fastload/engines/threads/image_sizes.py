"""BatchSizes: the sizes of a batch's images before they are made, where the transform leaves them
different, and how they then lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.batch.collate import Collate
from fastload.errors import BatchShapeError

if TYPE_CHECKING:
    from fastload.dataset.native_source import NativeSource


class ImageLayout(NamedTuple):
    """Layout of a batch's images in its slot.

    Attributes:
        kind: "equal": all have one size. "list": each has its own size, one after another. "padded": each has
            its own size, in the top left corner of a frame of zeros as large as the batch's largest height
            and width. "flat": patches, one right after another.
        pad_to: number of which the sides of a frame are multiples.
        even: True if boxes and other rows of any number begin at equal steps from sample to sample; False if
            one right after another.
        bounded: True if the sizes known before the images are made are upper bounds.
    """

    kind: str = "equal"
    pad_to: int = 1
    even: bool = False
    bounded: bool = False


EQUAL, LIST, FLAT = ImageLayout(), ImageLayout("list"), ImageLayout("flat")


def layout_for(collate_fn: object) -> ImageLayout:
    """Layout of images of different sizes, and of rows of any number, for a collate_fn other than torch's,
    which stacks them."""
    if not isinstance(collate_fn, Collate):
        return LIST
    even = collate_fn.form == "padded"
    if collate_fn.pad_to is None:
        return ImageLayout("list", even=even)
    return ImageLayout("padded", collate_fn.pad_to, even)


@dataclass(frozen=True)
class BatchSizes:
    """The sizes of one batch's images.

    Attributes:
        sizes: uint32 (parts, rows, 2), width and height; 0 x 0 of a row that cannot be made. Where the layout
            is bounded, the largest.
        failed: (row, reason) of each such row.
        layout: layout of the images.
    """

    sizes: npt.NDArray[np.uint32]
    failed: list[tuple[int, str]]
    layout: ImageLayout

    @property
    def for_batch(self) -> npt.NDArray[np.uint32] | list[tuple[int, int]]:
        """The sizes as core.Batch takes them."""
        if self.layout.kind != "equal":
            return self.sizes
        return [(int(width), int(height)) for width, height in self.sizes[:, 0]]


def batch_sizes(
    datasets: tuple[NativeSource, ...],
    sources: npt.NDArray[np.uint32],
    indices: npt.NDArray[np.uint64],
    parts: int,
    seed: int,
    epoch: int,
    layout: ImageLayout,
    seeds: npt.NDArray[np.uint64] | None = None,
    drawn_as: npt.NDArray[np.uint64] | None = None,
) -> BatchSizes:
    """Computes the sizes of all rows of a batch, each of so many parts, in one native call for each dataset
    and image.

    Sizes that depend on boxes are not known here: the images then lie one after another where the layout is
    "equal", and whoever makes one tensor of them finds whether they differ.

    Raises:
        BatchShapeError: they differ, and the layout is "equal".
        SampleError: the transform does not fit a sample, and the layout is "equal".
    """
    found = np.zeros((parts, len(indices), 2), np.uint32)
    failed: list[tuple[int, bool, str]] = []
    for number in np.unique(sources).tolist() if len(datasets) > 1 else (0,):
        rows = np.flatnonzero(sources == number)
        mine = None if seeds is None else seeds[rows]
        drawn = indices[rows] if drawn_as is None else drawn_as[rows]
        sizes, bad = _sizes_of(datasets[number], indices[rows], drawn, seed, epoch, mine)
        found[:, rows] = sizes
        failed += [(int(rows[row]), unfit, reason) for row, unfit, reason in bad]
    if any(dataset.plan.patches is not None for dataset in datasets):
        layout = FLAT
    made = BatchSizes(found, [(row, reason) for row, _, reason in failed], layout)
    if any(dataset.plan.boxed_size for dataset in datasets):
        return replace(
            made, layout=layout._replace(kind="padded" if layout.kind == "padded" else "list", bounded=True)
        )
    if layout.kind in ("padded", "flat"):
        return made
    if layout.kind == "list":
        return _listed(made)
    return _equal(made, failed, datasets, sources, indices)


def _sizes_of(
    dataset: NativeSource,
    indices: npt.NDArray[np.uint64],
    drawn_as: npt.NDArray[np.uint64],
    seed: int,
    epoch: int,
    seeds: npt.NDArray[np.uint64] | None,
) -> tuple[npt.NDArray[np.uint32], list[tuple[int, bool, str]]]:
    """Sizes of all images, and the samples without, as core.image_sizes returns them."""
    fixed = dataset.images.fixed_sizes(dataset.plan)
    if fixed is not None:
        one = np.array([(width, height) for height, width in fixed], np.uint32)
        return np.repeat(one[:, None], len(indices), axis=1), []
    programs, asked = list(dataset.plan.programs), np.ascontiguousarray(drawn_as)
    found, failed = [], {}
    for image in dataset.images.images:
        heights, widths = (np.ascontiguousarray(side[indices], np.int32) for side in image.sides())
        sizes, bad = core.image_sizes(
            programs, heights, widths, asked, dataset.max_pixels, seed, epoch, seeds
        )
        found.append(sizes)
        failed.update({each[0]: each for each in reversed(bad) if each[0] not in failed})
    whole = np.concatenate(found)
    whole[:, list(failed)] = 0
    return whole, [failed[row] for row in sorted(failed)]


def _listed(made: BatchSizes) -> BatchSizes:
    """The sizes, laid out as "equal" if the rows do not differ."""
    same = not made.failed and bool((made.sizes == made.sizes[:, :1]).all())
    return replace(made, layout=EQUAL._replace(even=made.layout.even)) if same else made


def _equal(
    made: BatchSizes,
    failed: list[tuple[int, bool, str]],
    datasets: tuple[NativeSource, ...],
    sources: npt.NDArray[np.uint32],
    indices: npt.NDArray[np.uint64],
) -> BatchSizes:
    """The one size of all rows; rows that cannot be made fail later."""
    for row, unfit, reason in failed:
        if unfit:
            raise datasets[sources[row]].sample_error(int(indices[row]), reason)
    bad = {row for row, _, _ in failed}
    good = [row for row in range(len(indices)) if row not in bad] if bad else range(len(indices))
    if not good:
        return BatchSizes(np.ones((len(made.sizes), 1, 2), np.uint32), [], EQUAL)
    first = good[0]
    sizes = made.sizes if not bad else made.sizes[:, good]
    differ = (sizes != sizes[:, :1]).any(axis=2)
    if differ.any():
        row = int(differ.any(axis=0).argmax())
        part = int(differ[:, row].argmax())
        name = datasets[0].images.part_names(datasets[0].plan)[part]
        raise _different_sizes(
            name, (int(indices[first]), sizes[part, 0]), (int(indices[good[row]]), sizes[part, row])
        )
    return BatchSizes(sizes[:, :1], [], EQUAL)


def require_one_size(images: Mapping[str, Sequence[Any]], indices: Sequence[int]) -> None:
    """Refuses to make one tensor of images that were found to have different sizes: those of each field, of
    the samples of these indices.

    Raises:
        BatchShapeError: they have.
    """
    for name, all_of in images.items():
        for index, image in zip(indices, all_of, strict=True):
            if image.shape != all_of[0].shape:
                (high, wide), (first_high, first_wide) = image.shape[-2:], all_of[0].shape[-2:]
                part = repr(name) if len(images) > 1 else ""
                raise _different_sizes(part, (indices[0], (first_wide, first_high)), (index, (wide, high)))


def _different_sizes(part: str, a: tuple[int, Any], b: tuple[int, Any]) -> BatchShapeError:
    """`part`: its name, or ""; `a` and `b`: index, and width and height, of two samples."""
    prefix = f"{part} of " if part else ""
    one, other = (f"{prefix}index {index} is {size[1]} x {size[0]}" for index, size in (a, b))
    return BatchShapeError(
        f"samples of one batch have different sizes: {one} and {other} (height x width). Add a "
        "transform that ends at one size, such as "
        "RandomResizedCrop(224) or Resize(256) + CenterCrop(224); or leave the sizes as they are: "
        'collate="list" gives a list of images, '
        'collate="padded" with pad_to=1 one tensor, padded with zeros to the largest.'
    )
