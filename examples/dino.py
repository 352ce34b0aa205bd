"""Self-supervised training after DINO: a student sees all views of an image, its teacher the large ones, and
both are to agree.

    fastload pack imagenet/train train.fl
    python examples/dino.py train.fl

The views of an image come from one read and one decode (fastload.transforms.Views); colours are jittered per
view on the device, in whole batches. Needs timm for the model. The loss, the centre and the moving average of
the teacher are the paper's (Caron et al., 2021, https://arxiv.org/abs/2104.14294), without its schedules of
learning rate and weight decay.
"""

from __future__ import annotations

import argparse
import copy

import torch
from timm import create_model
from torch import nn
from torch.nn.functional import log_softmax, normalize, softmax

from fastload import FastLoader
from fastload import augment as A
from fastload import transforms as T


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset")
    parser.add_argument(
        "--model", default="resnet50", help="a name that timm has; it must take images of both sizes"
    )
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="of the large views")
    parser.add_argument("--small", type=int, default=96, help="of the small views")
    parser.add_argument("--small-views", type=int, default=8)
    parser.add_argument("--prototypes", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--workers", type=int, help="native threads; default: as many as there are CPUs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print-every", type=int, default=50, help="steps")
    return parser.parse_args()


def views(size: int, small: int, count: int) -> T.Views:
    """Two large views and `count` small ones."""
    large = [T.RandomResizedCrop(size, scale=(0.4, 1.0), interpolation="bicubic"), T.RandomHorizontalFlip()]
    local = [T.RandomResizedCrop(small, scale=(0.05, 0.4), interpolation="bicubic"), T.RandomHorizontalFlip()]
    return T.Views([large] * 2 + [local] * count)


class Network(nn.Module):
    """A backbone and its head: images to scores of prototypes."""

    def __init__(self, name: str, prototypes: int) -> None:
        super().__init__()
        self.backbone = create_model(name, num_classes=0)
        width = self.backbone.num_features
        self.head = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, 128))
        self.prototypes = nn.Linear(128, prototypes, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.prototypes(normalize(self.head(self.backbone(images)), dim=-1))
        return scores


class Agreement(nn.Module):
    """DINO's loss: the cross entropy of each of the student's views against the teacher's for every other
    large view."""

    centre: torch.Tensor

    def __init__(self, prototypes: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(1, prototypes))

    def forward(self, student: list[torch.Tensor], teacher: list[torch.Tensor]) -> torch.Tensor:
        wanted = [softmax((each - self.centre) / 0.04, dim=-1).detach() for each in teacher]
        found = [log_softmax(each / 0.1, dim=-1) for each in student]
        losses = [
            -(want * have).sum(-1).mean()
            for n, want in enumerate(wanted)
            for k, have in enumerate(found)
            if n != k
        ]
        with torch.no_grad():
            self.centre.lerp_(torch.cat(teacher).mean(0, keepdim=True), 0.1)
        return torch.stack(losses).mean()


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, share: float = 0.004) -> None:
    """Moves the teacher a little towards the student."""
    for theirs, ours in zip(teacher.parameters(), student.parameters(), strict=True):
        theirs.lerp_(ours, share)


def main() -> None:
    given = arguments()
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    torch.manual_seed(given.seed)
    student = Network(given.model, given.prototypes).to(device)
    teacher = copy.deepcopy(student).requires_grad_(False)
    agreement = Agreement(given.prototypes).to(device)
    optimizer = torch.optim.AdamW(student.parameters(), lr=given.lr)
    colours = A.AugmentBatch([A.ColorJitter(0.4, 0.4, 0.2, 0.1), A.RandomGrayscale(0.2)])
    with FastLoader(
        given.train,
        given.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=given.workers,
        transform=views(given.size, given.small, given.small_views),
        device=device,
        batch_transform=[colours, T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))],
        seed=given.seed,
    ) as loader:
        for epoch in range(given.epochs):
            for step, (images, _) in enumerate(loader):
                with torch.no_grad():
                    wanted = [teacher(view) for view in images[:2]]
                loss = agreement([student(view) for view in images], wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                follow(teacher, student)
                if step % given.print_every == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
