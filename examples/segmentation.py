"""A segmenter, LR-ASPP over any of timm's backbones, trained on images and masks of one label a pixel.

    fastload pack VOCdevkit/VOC2012 train.fl --format voc-segmentation --split train
    python examples/segmentation.py train.fl

Image and mask go through one geometry, drawn once a sample, on native threads: a random size, a crop, a
mirror. Masks are sampled nearest, and 255 fills what lies beyond them: the label that the loss ignores.
Folders of images and masks, ADE20K and Cityscapes pack as well. Without --pretrained the backbone begins at
random weights, and nothing is downloaded. Needs torchvision and timm.
"""

from __future__ import annotations

import argparse

import torch
from timm import create_model
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.models.segmentation.lraspp import LRASPP

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

IGNORED = 255


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset with a mask")
    parser.add_argument(
        "--backbone",
        default="mobilenetv3_large_100",
        help="a model of timm that gives features of strides 8 and 16",
    )
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="begin with timm's weights, downloaded where they are not cached",
    )
    parser.add_argument("--classes", type=int, help="default: as many as the dataset names")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=480, help="of the crops")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, help="native threads; default: as many as there are CPUs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print-every", type=int, default=50, help="steps")
    return parser.parse_args()


def transform(size: int) -> list[T.Transform]:
    """A random scale from half to twice the size, then a crop."""
    return [
        T.RandomResize(size // 2, 2 * size),
        T.RandomCrop(size, pad_if_needed=True, mask_fill=IGNORED),
        T.RandomHorizontalFlip(),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]


class Features(nn.Module):
    """A backbone's features of strides 8 and 16, as LR-ASPP takes them."""

    def __init__(self, name: str, pretrained: bool) -> None:
        super().__init__()
        self.body = create_model(name, pretrained=pretrained, features_only=True)
        strides = self.body.feature_info.reduction()
        self.low, self.high = strides.index(8), strides.index(16)
        self.channels = self.body.feature_info.channels()

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.body(images)
        return {"low": features[self.low], "high": features[self.high]}


def make_model(name: str, pretrained: bool, classes: int) -> LRASPP:
    features = Features(name, pretrained)
    return LRASPP(features, features.channels[features.low], features.channels[features.high], classes)


def main() -> None:
    given = arguments()
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    torch.manual_seed(given.seed)
    data = PackedDataset(given.train, transform(given.size), fields=("image", "mask"))
    classes = given.classes or len(data.classes)
    model = make_model(given.backbone, given.pretrained, classes).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr)
    with FastLoader(
        data,
        given.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=given.workers,
        device=device,
        seed=given.seed,
    ) as loader:
        for epoch in range(given.epochs):
            for step, (images, masks) in enumerate(loader):
                loss = cross_entropy(model(images)["out"], masks.long(), ignore_index=IGNORED)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % given.print_every == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
