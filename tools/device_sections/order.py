"""Probes of order: no memory is used again under work that reads it, no stream runs before what it needs,
and graphs can be captured."""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import Any

import torch

from device_sections import planted
from device_sections.probing import (
    Probe,
    Setting,
    check_late,
    compare,
    epochs_of,
    loader_of,
    on_host,
    stalled,
)
from device_sections.report import Details, Wrong
from fastload.device import transfer

PREFETCH = 2


def control(setting: Setting) -> Details:
    """A stall makes copies late: the other probes of order rely on it."""
    check_late(setting)
    return {}


def dropped(setting: Setting, native: bool) -> Details:
    """A pinned batch that is dropped at once, inside of the stalled stream or outside of it, is copied
    whole."""
    want = on_host(setting, native)
    details: Details = {}
    for inside in (True, False):
        check_late(setting)
        got, stream = [], torch.cuda.Stream()
        with loader_of(setting, native, pin_memory=True) as loader:
            for _ in range(epochs_of(setting)):
                for images, _ in loader:
                    if not images.is_pinned():
                        raise Wrong("a batch is not pinned")
                    with torch.cuda.stream(stream):
                        setting.stall()
                        got.append(images.to("cuda", non_blocking=True))
                        if inside:
                            del images
                    if not inside:
                        del images
            details["host_memory"] = loader._fastload.plan.host_memory
        details["inside" if inside else "outside"] = compare(got, want)
    return details


def used_late(setting: Setting, native: bool) -> Details:
    """A batch on the device that is dropped at once is read by work that runs later, on a stream of the
    user's."""
    want = [images.long().sum() for images in on_host(setting, native)]
    with stalled(setting), loader_of(setting, native, device="cuda", device_prefetch=0) as loader:
        sums = []
        for _ in range(epochs_of(setting)):
            for images, _ in loader:
                setting.run_others()  # the copy of this batch, which must not meet the work on the one before
                setting.stall()
                sums.append(images.long().sum())
                del images
    return compare(sums, want)


def early_stage(setting: Setting) -> Details:
    """A stage that runs ahead reads what the loop has queued before iter()."""
    want = on_host(setting, native=True)
    offset = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()

    def shifted(images: torch.Tensor, *, seed: int, epoch: int, indices: Any) -> torch.Tensor:
        return images + offset

    with stalled(setting), loader_of(setting, native=True, device="cuda", batch_transform=shifted) as loader:
        setting.stall()
        offset.add_(5)
        got = []
        for images, _ in loader:
            setting.run_others()
            got.append(images)
    return compare(got, [images + 5.0 for images in want])


class Weight(torch.nn.Module):
    """A module of one weight, which the loop writes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, device="cuda"), requires_grad=False)


def weights(setting: Setting, native: bool) -> Details:
    """A stage with a module's weights reads what the loop wrote after the batch before, and nothing that
    it wrote later."""
    want = on_host(setting, native)
    module = Weight()

    def weighed(images: torch.Tensor, *, seed: int, epoch: int, indices: Any) -> torch.Tensor:
        return images * module.weight

    got = []
    with (
        stalled(setting),
        loader_of(
            setting, native, device="cuda", device_prefetch=PREFETCH, batch_transform=weighed
        ) as loader,
    ):
        for images, _ in loader:
            setting.run_others()
            got.append(images)
            setting.stall()
            module.weight.add_(1)
    return compare(got, [images * float(number) for number, images in enumerate(want, 1)])


def runs_ahead(setting: Setting, native: bool) -> Details:
    """A loop that only queues is at most LOOP_AHEAD batches, those that are moved ahead, and two before
    the device."""
    done: list[Any] = []
    most = 0
    with stalled(setting), loader_of(setting, native, device="cuda", device_prefetch=PREFETCH) as loader:
        for _ in range(epochs_of(setting)):
            for images, _ in loader:
                setting.stall()
                images.float().sum()
                done.append(torch.cuda.current_stream().record_event())
                most = max(most, sum(not event.query() for event in done))
    torch.cuda.synchronize()
    bound = transfer.LOOP_AHEAD + PREFETCH + 2
    if most > bound:
        raise Wrong(
            f"the loop was {most} batches before the device, and at most {bound} are allowed",
            most=most,
            batches=len(done),
        )
    return {"most": most, "bound": bound, "batches": len(done)}


def reserved(setting: Setting) -> Details:
    """Memory that torch has reserved after many epochs is that after the second, up to a few batches."""
    size = 3 * setting.batch * setting.side**2
    found = []
    with loader_of(setting, native=True, device="cuda") as loader:
        for _ in range(setting.epochs):
            for images, _ in loader:
                images.sum()
                del images
            torch.cuda.synchronize()
            found.append(torch.cuda.memory_reserved())
    grown = found[-1] - found[1]
    allowed = 4 * size + 3 * setting.segment
    if grown > allowed:
        raise Wrong(
            f"memory grew by {grown} bytes from epoch 2 to {setting.epochs}",
            reserved=found[1::4],
            allowed=allowed,
        )
    return {"second": found[1], "last": found[-1], "allowed": allowed}


def captured(setting: Setting, native: bool, pinned: bool) -> Details:
    """A graph is captured in the middle of an epoch, while batches are dropped; it replays, and the epoch
    goes on."""
    want = on_host(setting, native)
    memory: dict[str, Any] = (
        {"pin_memory": True} if pinned else {"device": "cuda", "device_prefetch": PREFETCH}
    )
    counter, graph = torch.zeros(3, device="cuda"), torch.cuda.CUDAGraph()
    faults = len(setting.faults)
    with loader_of(setting, native, **memory) as loader:
        iterator = iter(loader)
        held = [next(iterator)[0] for _ in range(2)]
        with torch.cuda.graph(graph):
            counter.add_(1)
            held.clear()
            gc.collect()
            for _ in range(5):
                time.sleep(0.01)  # the loader's threads move what they may
                counter.add_(1)
        rest = [images.to("cuda", non_blocking=True) for images, _ in iterator]
        graph.replay()
        again = [images.to("cuda", non_blocking=True) for images, _ in loader]
        torch.cuda.synchronize()
        if setting.faults[faults:]:
            raise Wrong(setting.faults[faults], faults=setting.faults[faults:])
        if counter.cpu().tolist() != [6.0] * 3:
            raise Wrong(f"the graph's replay gave {counter.cpu().tolist()}")
    compare(again, want)
    torch.cuda.synchronize()
    return compare(rest, want[2:])


def replays(setting: Setting, native: bool) -> Details:
    """A loop that replays a graph on each batch gets each batch's values."""
    want = [images.long().sum() for images in on_host(setting, native)]
    static = torch.zeros((setting.batch, 3, setting.side, setting.side), dtype=torch.uint8, device="cuda")
    static.long().sum()  # what the graph needs is loaded
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = static.long().sum()
    with stalled(setting), loader_of(setting, native, device="cuda", device_prefetch=PREFETCH) as loader:
        totals = []
        for _ in range(epochs_of(setting)):
            for images, _ in loader:
                setting.stall()
                static.copy_(images)
                del images
                graph.replay()
                totals.append(total.clone())
    return compare(totals, want)


def by_engine(title: str, run: Any, **defects: Any) -> list[Probe]:
    """The probe for native threads and for worker processes."""
    return [
        Probe(f"{title}, {'threads' if native else 'processes'}", partial(run, native=native), dict(defects))
        for native in (True, False)
    ]


PROBES = [
    Probe("copies are late", control, {"every copy is waited for": planted.prompt_copies}),
    Probe(
        "dropped pinned batches, threads", partial(dropped, native=True), {"one buffer": planted.one_buffer}
    ),
    Probe(
        "dropped pinned batches, processes",
        partial(dropped, native=False),
        {"events pass at once": planted.events_pass_at_once},
    ),
    *by_engine("used late on the device", used_late, unrecorded=planted.no_record),
    Probe("an early stage follows the loop", early_stage, {"it does not": planted.no_follow}),
    *by_engine("weights written late", weights, early=planted.all_ahead),
    *by_engine("a loop that runs ahead", runs_ahead, free=planted.no_hold_back),
    Probe("reserved memory", reserved, {"a stream for each pass": planted.lane_a_pass}, limit=40),
    Probe(
        "capture, device, threads",
        partial(captured, native=True, pinned=False),
        {"no thread is relaxed": planted.no_relaxing},
    ),
    Probe(
        "capture, pinned, threads",
        partial(captured, native=True, pinned=True),
        {"a batch's end asks": planted.asking_ends},
    ),
    Probe(
        "capture, pinned, processes",
        partial(captured, native=False, pinned=True),
        {"captures are not seen": planted.unseen_captures},
    ),
    *by_engine("graph replays", replays, unwaited=planted.no_waiting),
]
