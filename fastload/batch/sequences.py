"""PackSequences: batches whose sequences follow each other in one row, with their images, for attention that
takes their lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from fastload.batch.collate import Collate, CollateForm
from fastload.batch.containers import Flat, PatchedImages
from fastload.errors import ArgumentError

IGNORED = -100
"""The label of tokens that no loss is taken of: torch's CrossEntropyLoss ignores it."""


@dataclass(frozen=True)
class PackSequences(Collate):
    """A collate_fn that makes one row of a batch's sequences, for attention that takes their lengths.

    Samples are dicts with token ids; a batch is a dict of

    - `input_ids`: int64 (L,); each image's placeholder is repeated for all of its tokens.
    - `position_ids`: int64 (L,), from 0 in each sequence; with `mrope` (3, L), as Qwen2-VL counts them.
    - `cu_seqlens`: int32 (B + 1,), where sequences begin, and `max_seqlen`: FlashAttention's.
    - `labels`: int64 (L,), the ids; -100 at a sequence's first token, at images and at what `mask` names.
    - `pixel_values`, `image_grid_thw`, and all other fields as collate="flat" has them.

    Attributes:
        tokens: field of the token ids.
        image_token: id of an image's placeholder; None: there is none.
        merge: as of Patches.
        mask: names of fields: a number of first tokens, or a value for each token that is not 0, without
            labels.
        mrope: position ids have three dimensions.
        vocabulary: number of ids; None: unchecked.
        max_tokens: tokens to which a sequence is cut; None: it is not.

    Raises:
        ArgumentError: samples do not fit, such as placeholders that are not as many as images.
    """

    form: CollateForm = field(default="flat", init=False)
    pad_to: int | None = field(default=None, init=False)
    tokens: str = "input_ids"
    image_token: int | None = None
    merge: int = 2
    mask: Sequence[str] = ()
    mrope: bool = False
    vocabulary: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        Collate.__post_init__(self)
        if isinstance(self.mask, str):
            raise ArgumentError(f"mask={self.mask!r}: give a list of names of fields")
        object.__setattr__(self, "mask", tuple(self.mask))
        for name in ("merge", "vocabulary", "max_tokens", "image_token"):
            value: Any = getattr(self, name)
            least = -1 << 63 if name == "image_token" else 1
            if value is None:
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, Integral)
                or not least <= int(value) < 1 << 63
            ):
                raise ArgumentError(f"{name}={value!r}: give a number of {least} or more")

    def finish(
        self, batch: object, samples: Sequence[Any] | None = None, counts: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """The batch of sequences, of one that collate="flat" makes."""
        tokens = _flat(batch.get(self.tokens)) if isinstance(batch, Mapping) else None
        if not isinstance(batch, Mapping) or not isinstance(tokens, Flat):
            raise ArgumentError(
                f"PackSequences takes samples that are dicts with token ids in {self.tokens!r}, a tensor of "
                "one dimension"
            )
        out = {name: value for name, value in batch.items() if name != self.tokens and name not in self.mask}
        images = [name for name, value in out.items() if isinstance(value, PatchedImages)]
        if len(images) > 1:
            raise ArgumentError(
                f"PackSequences takes the patches of one field, not of {' and '.join(images)}"
            )
        patched = out.pop(images[0]) if images else None
        if patched is None:
            own, grids = torch.zeros(len(tokens.offsets) - 1), torch.zeros((0, 3), dtype=torch.int64)
        else:
            each = counts
            if samples is not None:
                each = [len(sample[images[0]].image_grid_thw) for sample in samples]
            own = torch.ones(len(tokens.offsets) - 1) if each is None else torch.tensor(each)
            grids = patched.image_grid_thw
        row = _Row.of(self, tokens, grids, own)
        made = row.batch([_flat(batch[name]) if name in batch else _missing(name) for name in self.mask])
        made |= {} if patched is None else patched._asdict()
        if twice := next((name for name in out if name in made), None):
            raise ArgumentError(
                f"PackSequences makes {twice!r} itself, and samples have a field of that name: leave it out "
                "(fields=), or call it otherwise"
            )
        return made | out


def _missing(name: str) -> Any:
    raise ArgumentError(f"PackSequences: mask names {name!r}, which samples do not have")


def _flat(value: Any) -> Any:
    """Rows of one length as those of any lengths are; else the value itself."""
    if not isinstance(value, Tensor) or value.ndim != 2:
        return value
    return Flat(value.flatten(), torch.arange(len(value) + 1) * value.shape[1])


@dataclass
class _Row:
    """The sequences of a batch, and the number of tokens that each of theirs becomes.

    Attributes:
        rule: the collate_fn.
        ids: int64 (T,).
        offsets: int64 (B + 1,).
        counts: int64 (T,): tokens that each becomes; more than 1 at images alone.
        grids: int64 (I, 2): tokens of each image down and across.
        places: int64 (I,): where placeholders are.
    """

    rule: PackSequences
    ids: Tensor
    offsets: Tensor
    counts: Tensor
    grids: Tensor
    places: Tensor

    @classmethod
    def of(cls, rule: PackSequences, tokens: Flat, grids: Tensor, own: Tensor) -> _Row:
        """The sequences of these ids, with images of these grids (I, 3), of which each has `own`. Raises
        ArgumentError."""
        ids, offsets = tokens
        if ids.ndim != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise ArgumentError(
                f"token ids are integers of one dimension, not {ids.dtype} {tuple(ids.shape)}"
            )
        ids = ids.to(torch.int64)
        if (
            rule.vocabulary is not None
            and len(ids)
            and not 0 <= int(ids.min()) <= int(ids.max()) < rule.vocabulary
        ):
            wrong = int(((ids < 0) | (ids >= rule.vocabulary)).nonzero()[0])
            raise ArgumentError(
                f"row {_row_of(offsets, wrong)} has the token id {int(ids[wrong])}; there are "
                f"{rule.vocabulary}"
            )
        counts = torch.ones_like(ids)
        if rule.image_token is None:
            return cls(rule, ids, offsets, counts, grids[:0, 1:], torch.zeros(0, dtype=torch.int64))
        places = (ids == rule.image_token).nonzero()[:, 0]
        each = torch.bincount(torch.searchsorted(offsets, places, right=True) - 1, minlength=len(own))
        if len(unlike := (each != own).nonzero()):
            row = int(unlike[0])
            raise ArgumentError(
                f"{len(places)} placeholders of images in a batch that has {len(grids)} images: row {row} "
                f"has {int(each[row])}, for {int(own[row])} of its own"
            )
        if bool((grids[:, 1:] % rule.merge).any()):
            raise ArgumentError(
                f"merge={rule.merge} does not divide the patches of all images: give PackSequences "
                "the merge= of their Patches"
            )
        shapes = grids[:, 1:] // rule.merge
        counts[places] = shapes.prod(dim=1)
        return cls(rule, ids, offsets, counts, shapes, places)

    def batch(self, masks: Sequence[Any]) -> dict[str, Any]:
        """The row's parts of the batch. Raises ArgumentError."""
        is_image = torch.zeros(len(self.ids), dtype=torch.bool)
        is_image[self.places] = True
        labels = self.ids.masked_fill(is_image, IGNORED)
        labels[self.offsets[:-1][self.offsets[:-1] < self.offsets[1:]]] = IGNORED
        for name, mask in zip(self.rule.mask, masks, strict=True):
            labels[self._masked(name, mask)] = IGNORED
        counts = self._cut()
        ids, kept = (each.repeat_interleave(counts) for each in (self.ids, labels))
        seams = _before(counts)[self.offsets].to(torch.int32)
        lengths = seams.diff()
        return {
            "input_ids": ids,
            "position_ids": self._positions(counts),
            "cu_seqlens": seams,
            "max_seqlen": int(lengths.max()) if len(lengths) else 0,
            "labels": kept,
        }

    def _masked(self, name: str, mask: Any) -> Tensor:
        """Marks the tokens that have no label, by one field of the mask."""
        if isinstance(mask, Flat):
            if mask.values.shape != self.ids.shape or not torch.equal(mask.offsets, self.offsets):
                raise ArgumentError(f"mask: {name!r} has not one value for each token")
            return mask.values != 0
        if isinstance(mask, Tensor) and mask.ndim == 1 and len(mask) == len(self.offsets) - 1:
            place = _running(torch.ones_like(self.ids), self.offsets)
            return place <= mask.repeat_interleave(self.offsets.diff())
        raise ArgumentError(f"mask: {name!r} is neither a number nor one value for each token")

    def _cut(self) -> Tensor:
        """Counts the tokens that each becomes, with what is beyond max_tokens cut off."""
        most = self.rule.max_tokens
        if most is None:
            return self.counts
        counts = torch.where(_running(self.counts, self.offsets) <= most, self.counts, 0)
        lost = self.places[counts[self.places] < self.counts[self.places]]
        if len(lost):
            raise ArgumentError(
                f"row {_row_of(self.offsets, int(lost[0]))} has an image beyond max_tokens={most}, and "
                'images are not cut: leave such samples out, as TokenBatches(on_long="drop") does'
            )
        return counts

    def _positions(self, counts: Tensor) -> Tensor:
        """The position ids: Qwen2-VL's rule. A token of text goes one on in all dimensions; an image lies at
        one time, its rows and columns from there on, and what follows begins behind the longer side."""
        steps = self.counts.clone()
        if self.rule.mrope and len(self.grids):
            steps[self.places] = self.grids.amax(dim=1)
        base = (_running(steps, self.offsets) - steps).repeat_interleave(counts)
        within = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        if not self.rule.mrope:
            return base + within
        across = torch.ones_like(self.ids)
        across[self.places] = self.grids[:, 1]
        across = across.repeat_interleave(counts)
        return base + torch.stack([torch.zeros_like(within), within // across, within % across])


def _before(values: Tensor) -> Tensor:
    """Sums of the values before each, and of all: one more than there are values."""
    return torch.nn.functional.pad(values.cumsum(0), (1, 0))


def _running(values: Tensor, offsets: Tensor) -> Tensor:
    """Sums of the values of each sequence up to each of them, that one among them."""
    return values.cumsum(0) - _before(values)[offsets[:-1]].repeat_interleave(offsets.diff())


def _row_of(offsets: Tensor, place: int) -> int:
    return int(torch.searchsorted(offsets, place, right=True)) - 1
