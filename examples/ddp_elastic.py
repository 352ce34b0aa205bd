"""Trains on any number of ranks, and goes on with any other number: each sample once an epoch, whoever stops
in between.

    fastload pack IMAGES train.fl
    torchrun --nproc_per_node 4 examples/ddp_elastic.py train.fl --checkpoint run.pt
    torchrun --nproc_per_node 2 examples/ddp_elastic.py train.fl --checkpoint run.pt

The second command goes on where the first was stopped (Ctrl-C, a lost machine, --stop-after). It takes a
folder or a URL (s3://...). The model is a small one, for which the CPUs do.
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fastload import FastLoader
from fastload import transforms as T


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a packed dataset: a folder or a URL")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        required=True,
        help="where the run is saved, and resumed from if it is there",
    )
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument(
        "--timeout", type=float, default=300, help="seconds after which ranks give up a rank that is gone"
    )
    parser.add_argument(
        "--stop-after", type=int, help="leave after that many steps, as a machine does that is taken away"
    )
    return parser.parse_args()


def save(path: Path, **parts: Any) -> None:
    """Writes a checkpoint, whole or not at all."""
    beside = path.with_name(path.name + ".part")
    torch.save(parts, beside)
    os.replace(beside, path)


def network(classes: int) -> nn.Module:
    layers = [nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))


def train(args: argparse.Namespace, device: torch.device) -> None:
    """The epochs of one rank."""
    torch.manual_seed(0)
    model = DistributedDataParallel(network(args.classes).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    transform = [T.RandomResizedCrop(args.size), T.RandomHorizontalFlip(), T.ToFloat()]
    loader = FastLoader(
        args.data, args.batch_size, shuffle=True, seed=0, shard="auto", transform=transform, device=device
    )
    step = 0
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # the same on every rank, and for any number of them
        step = saved["step"]
    with loader:
        while loader.epoch < args.epochs:
            epoch, seen = loader.epoch, torch.zeros(1, device=device)
            for images, labels in loader:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                seen += len(labels)
                if step % args.every == 0 and dist.get_rank() == 0:
                    save(
                        args.checkpoint,
                        model=model.state_dict(),
                        optimizer=optimizer.state_dict(),
                        loader=loader.state_dict(),
                        step=step,
                    )
                if step == args.stop_after:
                    dist.barrier()
                    os._exit(0)
            dist.all_reduce(seen)
            if dist.get_rank() == 0:
                print(
                    f"epoch {epoch}: {dist.get_world_size()} ranks, {int(seen)} samples, loss "
                    f"{loss.item():.3f}",
                    flush=True,
                )


def main() -> None:
    args = arguments()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=args.timeout))
    train(args, torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu"))
    # The model is gone by now. A model that outlives the group may wait for gloo's thread, which waits for
    # the interpreter, for ever.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
