"""64 hosts that train from one bucket, simulated, beside the closed form: time, requests, bytes and money of
an epoch, and what limits it.

    python benchmarks/simulate_hosts.py [--seed 0] [--json FILE]
    python benchmarks/simulate_hosts.py --grow           # the same by number of hosts: what breaks first, and
    where python benchmarks/simulate_hosts.py --one order=huge hosts=16 cache=0.5 link=1.25e9    # a scenario
    of your own

The model, what it assumes and how it is scaled is said in hosts_model.py, and printed above the table by
--assumptions. All is plain Python and NumPy, without a clock: the same seed gives the same figures on every
machine.

The closed form: requests and bytes are those of `fastload info --cost` (fastload.remote.caches.epoch_traffic)
of each host for itself, with the samples that it reads in the epoch and its cache lacks, and the room that is
left in the cache. Where ranks share an order of single samples, ranges are shorter than that command knows,
since a range is of one rank's samples (`runs`). The time is the largest of

- compute: samples / (ranks * rate);
- link: bytes of a host / its link, that of the slowest host;
- requests: requests / the store's limit;
- bytes: bytes / the store's limit;
- latency: requests of a rank * their mean time / requests on their way, which is Little's law.

It knows neither queues nor tails: a ratio above 1 is what pauses after 503, the slowest of many answers, and
stragglers cost beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import hosts_model
from hosts_model import S3_REQUESTS, Epoch, Scenario, Simulation
from rich.console import Console
from rich.table import Table

from fastload.remote.caches import GIB, PRICES, epoch_traffic
from fastload.remote.fetcher import IN_FLIGHT, IN_FLIGHT_BYTES, RANGE_BYTES

PREFIXES = 16
WIDE = PREFIXES * S3_REQUESTS
GBIT = 125e6
SCENARIOS = (
    Scenario("window", store_requests=WIDE),
    Scenario("window, 1 prefix"),
    Scenario("huge", order="huge", store_requests=WIDE),
    Scenario("huge, 1 prefix", order="huge"),
    Scenario("huge, no limit", order="huge", store_requests=0),
    Scenario("huge, slow answers", order="huge", store_requests=0, latency=0.2, latency_p99=0.8),
    Scenario("window, slow answers", store_requests=0, latency=0.2, latency_p99=0.8),
    Scenario("window, stragglers", link=10 * GBIT, stragglers=1 / 16, slower=4, store_requests=WIDE),
    Scenario("window, 100 Gbit/s store", store_bytes=100 * GBIT, store_requests=WIDE),
    Scenario("window, c = 1", cache=1.0, epochs=2, store_requests=WIDE),
    Scenario("window, c = 0.5, full", cache=0.5, filled=True),
    Scenario("window, c = 1/64", cache=1 / 64, epochs=3, store_requests=WIDE),
    Scenario("window, hosts=64, c = 1/64", keep=True, cache=1 / 64, epochs=3, store_requests=WIDE),
    Scenario("window, hosts=64, c = 1/128, 1 prefix", keep=True, cache=1 / 128, epochs=3),
    Scenario("huge, c = 0.5, full", order="huge", cache=0.5, filled=True, store_requests=WIDE),
)
"""64 hosts of 8 ranks of 500 images a second, 10 TB of images of 110 KB; what the name does not say is
Scenario's default."""
GROWN = tuple(
    Scenario(f"{order}, {hosts} hosts", order=order, hosts=hosts)
    for order in ("window", "huge")
    for hosts in (1, 2, 4, 8, 16, 24, 32, 64)
)
"""Up to the point where one prefix's 5,500 requests a second are less than the hosts ask for, and beyond
it."""


def runs(samples: float, block: int, share: float) -> float:
    """Ranges that samples make, which are a random share of all, where neighbours within a block go
    together: expected number."""
    return samples * (1 + (block - 1) * (1 - share)) / block


@dataclass(frozen=True)
class ClosedForm:
    """An epoch by formulas.

    Attributes:
        requests, bytes: of all hosts.
        cost_requests: requests as `fastload info --cost` has them, which does not know of ranks.
        bounds: seconds of each thing that may limit it.
        cached: share of the data in a host's cache at its end.
    """

    requests: float
    bytes: float
    cost_requests: float
    bounds: dict[str, float]
    cached: float

    @property
    def limit(self) -> str:
        """What limits it."""
        return max(self.bounds, key=lambda name: self.bounds[name])

    @property
    def seconds(self) -> float:
        """Its time."""
        return self.bounds[self.limit]


def closed_form(s: Scenario, cached: float) -> ClosedForm:
    """An epoch that begins with a share of the data in each host's cache."""
    # Share of what a host asks for that its cache has.
    found = min(1.0, cached * s.hosts) if s.keep else cached
    missed = s.samples / s.hosts * (1 - found)
    room = max(0.0, s.cache - cached) * s.samples
    kept = min(room, missed)
    traffic = epoch_traffic(round(missed), round(missed) * s.sample_bytes, round(room) * s.sample_bytes)
    of_host = traffic.first_window if s.order == "window" else traffic.first
    requests = float(of_host.requests)
    if s.order != "window":
        block = max(1, RANGE_BYTES // s.sample_bytes)
        requests = runs(kept, block, 1 / s.processes) + missed - kept
    size = of_host.bytes
    each = size / requests if requests else 0.0
    ahead = s.asked_ahead * s.batch * requests / (s.samples / s.hosts)
    flying = min(IN_FLIGHT, math.ceil(IN_FLIGHT_BYTES / each), ahead) if each else 1.0
    slowest = s.link / (s.slower if s.slow_hosts else 1)
    bounds = {
        "compute": s.samples / (s.processes * s.rate),
        "link": size / slowest,
        "requests": s.hosts * requests / s.store_requests if s.store_requests else 0.0,
        "bytes": s.hosts * size / s.store_bytes if s.store_bytes else 0.0,
        "latency": requests / s.ranks * (s.mean_latency + each / s.stream + each / s.link) / max(1.0, flying),
    }
    return ClosedForm(
        s.hosts * requests,
        float(s.hosts * size),
        float(s.hosts * of_host.requests),
        bounds,
        cached + kept / max(1, s.samples),
    )


@dataclass(frozen=True)
class Line:
    """One epoch of a scenario, simulated and by formulas, scaled to the dataset.

    Attributes:
        scenario: its name, and the epoch where there are several.
        hours: simulated.
        idle: share of the time in which no rank computes.
        requests, refused, bytes: simulated, of the epoch.
        mean, peak: requests a second at the store; the peak counts refused ones too.
        dollars, dollars_out: of the requests at S3's list price, and with the bytes where they leave the
            cloud.
        fails: requests of the simulated stretch that ended after `timeout`, with which fastload's training
            ends.
        limit: what limits it by the closed form.
        closed_hours, closed_requests, cost_requests: by the closed form, and by `fastload info --cost`.
        cached: share of the data in a host's cache at its end.
    """

    scenario: str
    hours: float
    idle: float
    requests: float
    refused: float
    bytes: float
    mean: float
    peak: float
    dollars: float
    dollars_out: float
    fails: int
    limit: str
    closed_hours: float
    closed_requests: float
    cost_requests: float
    cached: float

    @property
    def time_ratio(self) -> float:
        """Simulated over the closed form."""
        return self.hours / self.closed_hours

    @property
    def request_ratio(self) -> float:
        """The same of requests; 1 where neither has any."""
        return self.requests / self.closed_requests if self.closed_requests else 1.0


def line_of(s: Scenario, name: str, found: Epoch, closed: ClosedForm) -> Line:
    """A simulated epoch, scaled to the dataset."""
    size = found.bytes / found.samples * s.samples
    requests = size / found.range_bytes if found.range_bytes else 0.0
    seconds = found.step_s / s.batch / s.processes * s.samples
    if s.store_requests:  # a burst is much of a small epoch, and nothing of a large one
        seconds = max(seconds, requests / s.store_requests)
    price = PRICES[0]
    dollars = requests / 1000 * price.requests
    return Line(
        scenario=name,
        hours=seconds / 3600,
        idle=max(0.0, 1 - closed.bounds["compute"] / seconds),
        requests=requests,
        refused=found.refusals * requests,
        bytes=size,
        mean=requests / seconds,
        peak=found.peak * s.hosts / s.seen_hosts,
        dollars=dollars,
        dollars_out=dollars + size / GIB * price.gib,
        fails=found.failed,
        limit=closed.limit,
        closed_hours=closed.seconds / 3600,
        closed_requests=closed.requests,
        cost_requests=closed.cost_requests,
        cached=found.cached,
    )


def lines_of(s: Scenario) -> list[Line]:
    """All epochs of a scenario."""
    cached = s.cache if s.filled else 0.0
    lines = []
    for number, found in enumerate(Simulation(s).run(), 1):
        closed = closed_form(s, cached)
        cached = closed.cached
        lines.append(line_of(s, f"{s.name}, epoch {number}" if s.epochs > 1 else s.name, found, closed))
    return lines


def table_of(lines: Sequence[Line], title: str) -> Table:
    """The lines as a table."""
    shown = Table(title=title)
    right = (
        "hours",
        "idle",
        "requests",
        "GET/s",
        "peak",
        "503s",
        "TB",
        "$",
        "$ out",
        "limit",
        "closed, h",
        "time x",
        "req. x",
    )
    for heading in ("", *right):
        shown.add_column(heading, justify="left" if heading in ("", "limit") else "right")
    for each in lines:
        shown.add_row(
            each.scenario + (" (fails)" if each.fails else ""),
            f"{each.hours:,.2f}",
            f"{each.idle:.0%}",
            f"{each.requests / 1e6:,.2f} M",
            f"{each.mean:,.0f}",
            f"{each.peak:,.0f}",
            f"{each.refused / 1e6:,.2f} M",
            f"{each.bytes / 1e12:,.2f}",
            f"{each.dollars:,.2f}",
            f"{each.dollars_out:,.0f}",
            each.limit,
            f"{each.closed_hours:,.2f}",
            f"{each.time_ratio:.2f}",
            f"{each.request_ratio:.2f}",
        )
    return shown


def own(given: Sequence[str]) -> Scenario:
    """A scenario by NAME=VALUE. Raises ValueError for a name or a value that is none."""
    kinds = {field.name: type(getattr(Scenario(), field.name)) for field in fields(Scenario)}
    found: dict[str, Any] = {}
    for each in given:
        name, _, value = each.partition("=")
        if name not in kinds:
            raise ValueError(f"{name}: a scenario has {', '.join(kinds)}")
        kind = kinds[name]
        found[name] = (
            value.lower() in ("1", "true", "yes")
            if kind is bool
            else kind(float(value))
            if kind is int
            else kind(value)
        )
    return replace(Scenario(" ".join(given)), **found)


def main() -> int:
    """Simulates the scenarios that the command line asks for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--grow", action="store_true", help="1 to 64 hosts at one prefix instead of the scenarios"
    )
    made.add_argument(
        "--one", nargs="+", metavar="NAME=VALUE", help="one scenario: hosts_model.Scenario has the names"
    )
    made.add_argument(
        "--terabytes",
        type=float,
        default=10.0,
        help="of the dataset, where --one does not say (default %(default)s)",
    )
    made.add_argument(
        "--simulated",
        type=int,
        default=0,
        help=f"hosts to simulate (default {hosts_model.SIMULATED} of more)",
    )
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--json", type=Path, metavar="FILE", help="the lines as JSON")
    made.add_argument("--assumptions", action="store_true", help="print the model above the table")
    arguments = made.parse_args()
    console = Console(width=190)
    if arguments.one:
        try:
            chosen = [own(arguments.one)]
        except ValueError as error:
            made.error(str(error))
    else:
        common = {
            "dataset_bytes": arguments.terabytes * 1e12,
            "simulated": arguments.simulated,
            "seed": arguments.seed,
        }
        chosen = [replace(each, **common) for each in (GROWN if arguments.grow else SCENARIOS)]
    if arguments.assumptions:
        console.print(hosts_model.__doc__, highlight=False)
    lines = []
    with console.status("simulating") if console.is_terminal else open("/dev/null"):
        for each in chosen:
            lines += lines_of(each)
    console.print(
        table_of(
            lines,
            f"an epoch of {chosen[0].dataset_bytes / 1e12:g} TB, samples of {chosen[0].sample_bytes:,} bytes",
        )
    )
    console.print(
        "$: requests at S3's list price; $ out: and the bytes, where they leave the cloud; time x, "
        "req. x: simulated / closed form;"
    )
    console.print(
        "fails: a request was refused for `timeout` seconds, which ends the training. --assumptions "
        "prints the model."
    )
    if arguments.json:
        documents = [
            {"time_ratio": each.time_ratio, "request_ratio": each.request_ratio, **asdict(each)}
            for each in lines
        ]
        arguments.json.write_text(
            json.dumps({"scenarios": [asdict(each) for each in chosen], "epochs": documents}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
