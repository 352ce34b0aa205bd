"""Fine-tuning of any model of timm's on your own classes, with the size, crop, interpolation, mean and std
that the model was made for.

    fastload pack photos/train train.fl && fastload pack photos/val val.fl
    python examples/finetune_timm.py train.fl val.fl --model resnet50 --pretrained

Without --pretrained the weights are random, and nothing is downloaded. The best model so far is saved, as
timm's create_model(checkpoint_path=...) reads it.
Needs timm: pip install timm.
"""

from __future__ import annotations

import argparse
from typing import Any

import timm
import torch
from timm.data import resolve_model_data_config
from torch import nn
from torch.nn.functional import cross_entropy

from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset")
    parser.add_argument("val", help="packed dataset")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="begin with timm's weights, downloaded where they are not cached",
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-4, help="of the backbone")
    parser.add_argument("--head-lr", type=float, default=1e-3, help="of the new classifier")
    parser.add_argument("--out", default="best.pt")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def make_model(name: str, pretrained: bool, classes: int) -> Any:
    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=classes)
    except Exception as error:  # timm's, the hub's or the network's, whichever comes first
        if not pretrained:
            raise
        raise SystemExit(
            f"{name} with its weights cannot be had ({error}); without --pretrained it begins at random ones"
        ) from error


def make_loaders(
    args: argparse.Namespace, train: PackedDataset, device: torch.device, config: dict[str, Any]
) -> list[FastLoader[Any]]:
    """Train and val, as timm's data config of the model says."""
    height, width = config["input_size"][1:]
    how = config["interpolation"] if config["interpolation"] in ("bilinear", "bicubic") else "bicubic"
    normalize = T.Normalize(config["mean"], config["std"])
    train.transform = [
        T.RandomResizedCrop((height, width), scale=(0.35, 1.0), interpolation=how),
        T.RandomHorizontalFlip(),
    ]
    whole = [
        T.Resize(round(min(height, width) / config["crop_pct"]), interpolation=how),
        T.CenterCrop((height, width)),
        normalize,
    ]
    jitter = A.AugmentBatch([A.ColorJitter(0.3, 0.3, 0.3)])
    both: dict[str, Any] = {
        "batch_size": args.batch_size,
        "seed": args.seed,
        "device": device,
        "memory_format": torch.channels_last,
    }
    return [
        FastLoader(train, shuffle=True, drop_last=True, batch_transform=[jitter, normalize], **both),
        FastLoader(args.val, transform=whole, **both),
    ]


@torch.inference_mode()
def accuracy(model: nn.Module, loader: FastLoader[Any]) -> float:
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum() for images, labels in loader)
    return float(right) / len(loader.dataset)


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = PackedDataset(args.train)
    model = make_model(args.model, args.pretrained, len(data.classes)).to(
        device, memory_format=torch.channels_last
    )
    config = resolve_model_data_config(model)
    print(
        f"{args.model}: "
        + ", ".join(
            f"{name} {config[name]}" for name in ("input_size", "interpolation", "mean", "std", "crop_pct")
        )
    )
    train, val = make_loaders(args, data, device, config)

    head = list(model.get_classifier().parameters())
    backbone = [p for p in model.parameters() if all(p is not mine for mine in head)]
    optimizer = torch.optim.AdamW(
        [{"params": backbone, "lr": args.lr}, {"params": head, "lr": args.head_lr}], weight_decay=0.05
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    best = -1.0
    for epoch in range(args.epochs):
        model.train()
        losses = torch.zeros((), device=device)  # read once an epoch: reading it waits for the device
        for images, labels in train:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses += loss.detach()
        now = accuracy(model, val)
        print(f"epoch {epoch}: loss {losses.item() / len(train):.4f}, accuracy {now:.2%}", flush=True)
        if now > best:
            best = now
            torch.save(model.state_dict(), args.out)
    print(train.health.report())
    train.close()
    val.close()


if __name__ == "__main__":
    main()
