"""A detector, FCOS with a pyramid over any of timm's backbones, trained on COCO: images of their own sizes,
their boxes and classes.

    fastload pack coco/train2017 train.fl --annotations coco/annotations/instances_train2017.json
    python examples/detection.py train.fl

Image and boxes go through one geometry, drawn once a sample, on native threads: large scale jitter, a crop, a
mirror; boxes that are cut away are dropped with their classes. `collate="list"` gives the lists that
torchvision's detectors take. Without --pretrained the backbone begins at random weights, and nothing is
downloaded. Needs torchvision and timm.
"""

from __future__ import annotations

import argparse
from collections import OrderedDict

import torch
from timm import create_model
from torch import nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import FeaturePyramidNetwork

from fastload import FastLoader, PackedDataset
from fastload import transforms as T


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset with boxes and labels")
    parser.add_argument(
        "--backbone", default="resnet50", help="a model of timm that gives features of strides 8, 16 and 32"
    )
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="begin with timm's weights, downloaded where they are not cached",
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=640, help="of the crops")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--workers", type=int, help="native threads; default: as many as there are CPUs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print-every", type=int, default=50, help="steps")
    return parser.parse_args()


def transform(size: int) -> list[T.Transform]:
    """Large scale jitter (Ghiasi et al., 2021); torchvision's detectors normalise images themselves."""
    return [
        T.ScaleJitter((size, size), scale_range=(0.5, 2.0)),
        T.RandomCrop(size, pad_if_needed=True, fill=114),
        T.RandomHorizontalFlip(),
        T.ConvertBoundingBoxFormat("xyxy"),
        T.SanitizeBoundingBoxes(min_size=4),
        T.ToFloat(),
    ]


class Pyramid(nn.Module):
    """Features of strides 8, 16 and 32, as torchvision's detectors take them."""

    out_channels = 128

    def __init__(self, name: str, pretrained: bool) -> None:
        super().__init__()
        self.body = create_model(name, pretrained=pretrained, features_only=True)
        self.levels = [
            level for level, stride in enumerate(self.body.feature_info.reduction()) if stride in (8, 16, 32)
        ]
        channels = self.body.feature_info.channels()
        self.pyramid = FeaturePyramidNetwork([channels[level] for level in self.levels], self.out_channels)

    def forward(self, images: torch.Tensor) -> OrderedDict[str, torch.Tensor]:
        features = self.body(images)
        merged: OrderedDict[str, torch.Tensor] = self.pyramid(
            OrderedDict((str(level), features[level]) for level in self.levels)
        )
        return merged


def make_detector(name: str, pretrained: bool, classes: int, size: int) -> FCOS:
    """FCOS with one point a place and level; class 0 is the background."""
    backbone = Pyramid(name, pretrained)
    points = AnchorGenerator(
        tuple((8 * 2**level,) for level in range(len(backbone.levels))), ((1.0,),) * len(backbone.levels)
    )
    return FCOS(backbone, classes + 1, min_size=size, max_size=size, anchor_generator=points)


def main() -> None:
    given = arguments()
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    torch.manual_seed(given.seed)
    data = PackedDataset(given.train, transform(given.size), fields=("image", ["boxes", "labels"]))
    model = make_detector(given.backbone, given.pretrained, len(data.classes), given.size).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr)
    with FastLoader(
        data,
        given.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=given.workers,
        collate="list",
        device=device,
        seed=given.seed,
    ) as loader:
        for epoch in range(given.epochs):
            for step, (images, targets) in enumerate(loader):
                wanted = [{"boxes": each["boxes"], "labels": each["labels"] + 1} for each in targets]
                loss = sum(model(images, wanted).values())
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if step % given.print_every == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
