"""ImageNet-style training of a ResNet, on one device or several, with what happens to whole batches done on
the device.

    fastload pack imagenet/train train.fl && fastload pack imagenet/val val.fl
    python examples/imagenet.py train.fl val.fl
    torchrun --nproc_per_node 8 examples/imagenet.py train.fl val.fl
    python examples/imagenet.py train.fl val.fl --resume checkpoint.pt      # goes on with the batch after the
    last one had

Needs timm or torchvision, for the model. The defaults follow torchvision's recipe for ResNets:
TrivialAugmentWide, erasing, MixUp or CutMix, smoothed labels, warm-up and cosine, training at 176 and
evaluating at 224 pixels.
"""

from __future__ import annotations

import argparse
import math
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data.distributed import DistributedSampler

from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
AUGMENT: dict[str, list[Any]] = {
    "trivial": [A.TrivialAugmentWide()],
    "rand": [A.RandAugment(2, 9)],
    "none": [],
}
AMP = {"bfloat16": torch.bfloat16, "float16": torch.float16, "none": torch.float32}

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # torchrun sets them


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset")
    parser.add_argument("val", help="packed dataset")
    parser.add_argument(
        "--model", default="resnet50", help="a name that timm has, or torchvision where timm is missing"
    )
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=5, help="epochs")
    parser.add_argument("--batch-size", type=int, default=256, help="of each process")
    parser.add_argument("--size", type=int, default=176, help="of training images")
    parser.add_argument("--val-size", type=int, default=224)
    parser.add_argument(
        "--lr", type=float, default=0.5, help="for 1024 images a step; scaled to the number there is"
    )
    parser.add_argument("--weight-decay", type=float, default=2e-5)
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--augment", choices=AUGMENT, default="trivial")
    parser.add_argument("--amp", choices=AMP, default="bfloat16")
    parser.add_argument(
        "--workers", type=int, help="native threads of each process; default: its share of the CPUs"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print-every", type=int, default=50, help="steps")
    parser.add_argument("--save-every", type=int, default=1000, help="steps")
    parser.add_argument(
        "--checkpoint", default="checkpoint.pt", help="where to save; {step} in it keeps them all"
    )
    parser.add_argument("--resume", help="a checkpoint to go on from")
    return parser.parse_args()


def say(text: str) -> None:
    if RANK == 0:
        print(text, flush=True)


def make_model(name: str, classes: int) -> nn.Module:
    try:
        from timm import create_model
    except ImportError:
        from torchvision.models import get_model as create_model
    model: nn.Module = create_model(name, num_classes=classes)
    return model


def make_loaders(args: argparse.Namespace, device: torch.device) -> tuple[FastLoader[Any], FastLoader[Any]]:
    crop = [T.RandomResizedCrop(args.size), T.RandomHorizontalFlip()]
    whole = [T.Resize(round(args.val_size * 232 / 224)), T.CenterCrop(args.val_size), NORMALIZE]
    train, val = PackedDataset(args.train, transform=crop), PackedDataset(args.val, transform=whole)
    classes = len(train.classes)
    on_batches = [
        A.AugmentBatch(AUGMENT[args.augment]),
        NORMALIZE,
        A.AugmentBatch([A.RandomErasing(0.1)]),
        A.RandomChoice((A.MixUp(0.2, num_classes=classes), A.CutMix(1.0, num_classes=classes))),
    ]
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    workers = args.workers or (None if here == 1 else max(1, (os.cpu_count() or 1) // here))
    both: dict[str, Any] = {
        "num_workers": workers,
        "seed": args.seed,
        "device": device,
        "dtype": AMP[args.amp],
    }
    both["memory_format"] = torch.channels_last
    sampler: DistributedSampler[Any] | None = (
        DistributedSampler(train, seed=args.seed, drop_last=True) if WORLD > 1 else None
    )
    mine = val[RANK::WORLD]  # every image once, where DistributedSampler would repeat some
    return (
        FastLoader(
            train,
            args.batch_size,
            sampler is None,
            sampler,
            drop_last=True,
            batch_transform=on_batches,
            **both,
        ),
        FastLoader(mine, args.batch_size, **both),
    )


def make_optimizer(args: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    """SGD, which leaves biases and norms undecayed."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": args.weight_decay},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=args.lr * args.batch_size * WORLD / 1024, momentum=0.9)


def warmup_cosine(step: int, warmup: int, total: int) -> float:
    """The share of the full learning rate at this step."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / max(1, total - warmup))


@torch.inference_mode()
def accuracy(model: nn.Module, loader: FastLoader[Any], device: torch.device, amp: torch.dtype) -> float:
    """Over all ranks."""
    model.eval()
    right_seen = torch.zeros(2, device=device)
    for images, labels in loader:
        with torch.autocast(device.type, amp, enabled=amp != torch.float32):
            right = (model(images).argmax(1) == labels).sum()
        right_seen += torch.stack((right, right.new_tensor(len(labels))))
    if WORLD > 1:
        dist.all_reduce(right_seen)
    return float(right_seen[0] / right_seen[1])


def train(args: argparse.Namespace, device: torch.device) -> None:
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    loader, val = make_loaders(args, device)
    net = make_model(args.model, len(PackedDataset(args.train).classes)).to(
        device, memory_format=torch.channels_last
    )
    model = nn.parallel.DistributedDataParallel(net) if WORLD > 1 else net
    optimizer = make_optimizer(args, net)
    steps = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: warmup_cosine(step, args.warmup * len(loader), steps)
    )
    amp = AMP[args.amp]
    scaler = torch.amp.GradScaler(device.type, enabled=amp == torch.float16)
    parts = {"model": net, "optimizer": optimizer, "schedule": schedule, "scaler": scaler, "loader": loader}

    def save() -> None:
        if RANK == 0:  # all ranks stand at the same batch of theirs, so that one state is everyone's
            path = args.checkpoint.format(step=schedule.last_epoch)
            torch.save({name: part.state_dict() for name, part in parts.items()}, path + ".part")
            os.replace(path + ".part", path)  # never half a checkpoint

    if args.resume:
        saved = torch.load(args.resume, map_location=device, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        say(f"resumed from {args.resume} after step {schedule.last_epoch}")

    for epoch in range(loader.epoch, args.epochs):
        loader.set_epoch(epoch)
        model.train()
        for images, targets in loader:
            with torch.autocast(device.type, amp, enabled=amp != torch.float32):
                loss = cross_entropy(model(images), targets, label_smoothing=args.smoothing)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            step = schedule.last_epoch
            if step % args.print_every == 0:
                say(
                    f"epoch {epoch} step {step}/{steps}: loss {loss.item():.6f}, lr "
                    f"{schedule.get_last_lr()[0]:.6f}"
                )
            if step % args.save_every == 0:
                save()
        say(f"epoch {epoch}: accuracy {accuracy(net, val, device, amp):.2%}")
        save()
    say(loader.health.report())


def main() -> None:
    args = arguments()
    device = (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        if torch.cuda.is_available()
        else torch.device("cpu")
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if WORLD > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        train(args, device)
    finally:
        if WORLD > 1:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
