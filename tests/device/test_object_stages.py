"""Fields that lie in the images go through AugmentBatch with them, by their kinds; one that cannot is an
error."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fastload import augment as A
from fastload.device.stages import BatchFields, BatchKey, StageCall, stage_calls
from fastload.errors import ArgumentError

KEY = BatchKey(5, 1, 0, range(4))
FIELDS = BatchFields(
    "photo", "label", (("seg", "mask", ""), ("people", "boxes", "xywh"), ("joints", "keypoints", ""))
)


def stage(*transforms: Any) -> tuple[StageCall, ...]:
    return stage_calls(transforms, A.Seeded)


def batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)
    return {
        "photo": torch.randint(0, 256, (4, 3, 20, 30), dtype=torch.uint8, generator=generator),
        "seg": torch.randint(0, 9, (4, 20, 30), dtype=torch.uint8, generator=generator),
        "people": [torch.rand((n, 4), generator=generator) * 9 for n in (0, 1, 3, 2)],
        "joints": torch.rand((4, 2, 17, 3), generator=generator),
        "label": torch.arange(4),
    }


def test_fields_go_along_by_kind() -> None:
    """The values that AugmentBatch itself gives, under the fields' names and whatever these are; all other
    fields as they were."""
    given, augment = batch(), A.AugmentBatch([A.RandomHorizontalFlip(), A.RandomAffine(20), A.RandomCrop(16)])
    (call,) = stage(augment)
    out = call(given, KEY, FIELDS)
    objects = {"masks": given["seg"], "boxes": given["people"], "keypoints": given["joints"]}
    want = augment(given["photo"], seed=5, epoch=1, indices=range(4), box_format="xywh", **objects)
    assert list(out) == list(given)
    assert torch.equal(out["photo"], want.images)
    assert torch.equal(out["seg"], want.masks)
    assert torch.equal(out["joints"], want.keypoints)
    assert all(torch.equal(a, b) for a, b in zip(out["people"], want.boxes, strict=True))
    assert out["label"] is given["label"]


def test_names_alone_say_nothing() -> None:
    """A field called `masks` that the schema does not know as one stays as it is, and so does everything
    in a batch of unknown kinds."""
    given = {**batch(), "masks": torch.ones(4, 20, 30)}
    (call,) = stage(A.AugmentBatch([A.RandomCrop(16)]))
    out = call(given, KEY, BatchFields("photo"))
    assert out["photo"].shape == (4, 3, 16, 16)
    assert all(out[name] is given[name] for name in given if name != "photo")


@pytest.mark.parametrize("kind", ["image", "polygons"])
def test_what_cannot_follow_is_refused(kind: str) -> None:
    """A field that would stay behind is named, unless no op moves pixels."""
    given = {**batch(), "other": torch.zeros(4)}
    fields = BatchFields("photo", "label", (*FIELDS.objects, ("other", kind, "")))
    moving, still = stage(
        A.AugmentBatch([A.RandomRotation(5)]), A.AugmentBatch([A.ColorJitter(0.5), A.RandomErasing()])
    )
    with pytest.raises(ArgumentError, match=f"'other' \\({kind}\\) cannot follow"):
        moving(given, KEY, fields)
    out = still(given, KEY, fields)
    assert out["other"] is given["other"]
    assert torch.equal(out["seg"], given["seg"])
    assert not torch.equal(out["photo"], given["photo"])


def test_other_stages_get_the_images_alone() -> None:
    """A user's callable, and MixUp's kind, are called as ever."""
    (call,) = stage(lambda images: images + 1)
    given = batch()
    out = call(given, KEY, FIELDS)
    assert torch.equal(out["photo"], given["photo"] + 1)
    assert out["seg"] is given["seg"]
