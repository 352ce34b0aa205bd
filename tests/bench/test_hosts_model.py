"""The simulation of hosts in benchmarks: what must be conserved is, and where the closed form is exact
both agree."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="no checkout")

MIB = 1 << 20


@pytest.fixture(scope="module")
def model() -> Any:
    """The module hosts_model."""
    return importlib.import_module("hosts_model")


@pytest.fixture(scope="module")
def closed() -> Any:
    """The module simulate_hosts."""
    return importlib.import_module("simulate_hosts")


@pytest.fixture(scope="module", autouse=True)
def benchmarks_path() -> Any:
    """The scripts of benchmarks are modules."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


def small(model: Any, **given: Any) -> Any:
    """A few hosts on a fast network, whose store has no limit, with an epoch of some thousand samples."""
    base = {"hosts": 3, "ranks": 2, "batch": 16, "store_requests": 0.0, "rate": 400.0, "epochs": 2}
    return model.Scenario(**{**base, **given})


@pytest.mark.parametrize("order", ["shuffle", "huge", "window"])
@pytest.mark.parametrize("cache", [0.0, 0.2, 0.5, 1.0])
def test_every_byte_once(model: Any, order: str, cache: float) -> None:
    """In each epoch each sample that its host has not cached is fetched once, in no more bytes a request
    than ranges have."""
    s = small(model, order=order, cache=cache)
    simulation = model.Simulation(s)
    room = int(cache * simulation.count)
    before = 0.0
    for number, found in enumerate(simulation.run()):
        assert found.fetched_twice == found.failed == found.refused == 0
        assert found.samples == simulation.count
        most = 2 * MIB if order != "window" else 4 * MIB
        assert found.bytes / most <= found.requests <= found.bytes / s.sample_bytes
        if not number:
            assert found.bytes == found.samples * s.sample_bytes
        assert before <= found.cached <= room / simulation.count
        before = found.cached
        fetched = found.bytes // s.sample_bytes
    if cache == 0:
        assert fetched == simulation.count
    elif cache == 1:  # a host has a third of the data cached, and another third, drawn anew, to read
        assert 0.6 < fetched / simulation.count < 0.73


@pytest.mark.parametrize("order", ["shuffle", "window"])
def test_one_host_with_room_reads_once(model: Any, order: str) -> None:
    """One host with c = 1 fetches nothing after its first epoch."""
    first, later = model.Simulation(small(model, order=order, hosts=1, cache=1.0)).run()
    assert first.bytes == first.samples * 110_000
    assert (later.requests, later.bytes, later.cached) == (0, 0, 1.0)


@pytest.mark.parametrize(("cache", "fetched"), [(1 / 3, 0.0), (1 / 6, 0.5), (0.0, 1.0)])
def test_hosts_that_keep_their_blocks(model: Any, closed: Any, cache: float, fetched: float) -> None:
    """A cache for a host's part saves all of the later epochs, one for half of it half of them, as the
    closed form says."""
    s = small(model, keep=True, cache=cache, epochs=3)
    first, *later = model.Simulation(s).run()
    assert first.bytes == first.samples * 110_000
    for found in later:
        assert found.bytes / first.bytes == pytest.approx(fetched, abs=0.01)
    assert [line.request_ratio for line in closed.lines_of(s)] == pytest.approx([1, 1, 1], abs=0.15)
    with pytest.raises(ValueError, match="keep"):
        small(model, keep=True, order="huge")


@pytest.mark.parametrize("order", ["huge", "window"])
@pytest.mark.parametrize(("cache", "filled"), [(0.0, False), (0.25, True), (1.0, False), (1.0, True)])
def test_bytes_and_requests_of_the_closed_form(
    model: Any, closed: Any, order: str, cache: float, filled: bool
) -> None:
    """Bytes are within 5 % of those of `fastload info --cost`; requests within 15 %, since the first ones
    of an epoch are small."""
    for line in closed.lines_of(
        small(model, order=order, cache=cache, filled=filled, dataset_bytes=844_800_000)
    ):
        expected = closed.closed_form(small(model, order=order, cache=cache, dataset_bytes=844_800_000), 0.0)
        assert line.closed_requests <= expected.requests
        assert line.request_ratio == pytest.approx(1, abs=0.15)
        if cache < 1 or not filled:
            assert line.bytes / line.requests == pytest.approx(line.bytes / line.closed_requests, rel=0.15)


def test_the_closed_form_of_one_process_is_the_commands(model: Any, closed: Any) -> None:
    """For one host of one rank, requests and bytes are those of `fastload info --cost`."""
    from fastload.remote.caches import epoch_traffic

    for order, names in (("huge", ("first", "later")), ("window", ("first_window", "later_window"))):
        for cache in (0.0, 0.25, 1.0):
            s = small(model, order=order, hosts=1, ranks=1, cache=cache, dataset_bytes=110_000 * 190_000)
            known = epoch_traffic(
                s.samples, s.samples * s.sample_bytes, int(cache * s.samples) * s.sample_bytes
            )
            for name, cached in zip(names, (0.0, cache), strict=True):
                found, traffic = closed.closed_form(s, cached), getattr(known, name)
                assert found.requests == pytest.approx(traffic.requests, rel=0.01, abs=1)
                assert found.bytes == pytest.approx(traffic.bytes, rel=0.01)


def test_runs(closed: Any) -> None:
    """Ranges of a random share of the samples: as many as samples where it is little, as many as blocks
    where it is all."""
    assert closed.runs(19_000, 19, 1.0) == 1000
    assert closed.runs(19_000, 19, 0.0) == 19_000
    assert closed.runs(1000, 1, 0.5) == 1000


def test_where_computing_limits(model: Any) -> None:
    """Where everything else is fast, a step takes the time that it computes, and no rank waits."""
    fast = {"link": 1e12, "latency": 1e-4, "latency_p99": 2e-4, "stream": 1e11}
    for order in ("huge", "window"):
        found = model.Simulation(small(model, order=order, epochs=1, **fast)).run()[0]
        assert found.step_s == pytest.approx(16 / 400)


@pytest.mark.parametrize(
    ("limit", "given"),
    [
        ("link", {"link": 110_000 * 400.0, "order": "huge"}),
        ("link", {"link": 110_000 * 1600.0, "stragglers": 0.34, "slower": 4.0, "order": "window"}),
        ("bytes", {"store_bytes": 110_000 * 1000.0, "order": "huge"}),
        ("requests", {"store_requests": 1000.0, "order": "huge", "burst": 0.1}),
        ("latency", {"latency": 0.5, "latency_p99": 0.5, "order": "huge", "rate": 4000.0}),
    ],
)
def test_where_something_else_limits(model: Any, closed: Any, limit: str, given: dict[str, Any]) -> None:
    """An epoch takes no less than the closed form says, and where no request is refused, little more."""
    s = small(model, epochs=1, **given)
    line = closed.lines_of(s)[0]
    assert line.limit == limit
    assert line.time_ratio > 0.97
    if not line.refused:
        assert line.time_ratio < 1.25
    assert line.idle > 0


def test_a_store_that_refuses(model: Any) -> None:
    """Beyond its limit a store answers 503; all samples come all the same. With a short timeout requests
    fail, and are counted."""
    s = small(model, order="huge", epochs=1, store_requests=500.0)
    found = model.Simulation(s).run()[0]
    assert found.refused > 0
    assert found.failed == 0
    assert found.bytes == found.samples * s.sample_bytes
    assert found.requests / found.seconds <= 500 * 1.2
    assert model.Simulation(dataclasses.replace(s, timeout=2.0)).run()[0].failed > 0


def test_deterministic(model: Any) -> None:
    """A seed gives one result, another seed another; hosts that are not simulated change nothing but by
    chance."""
    s = small(model, order="window", store_requests=300.0, stragglers=0.3)
    first = model.Simulation(s).run()
    assert model.Simulation(s).run() == first
    assert model.Simulation(dataclasses.replace(s, seed=1)).run() != first
    part = model.Simulation(
        dataclasses.replace(s, hosts=6, simulated=3, store_requests=600.0, epochs=1)
    ).run()[0]
    assert part.step_s == pytest.approx(first[0].step_s, rel=0.3)


def test_samples_that_come_in_groups_are_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="groups"):
        model.Scenario(sample_bytes=20_000)
    with pytest.raises(ValueError, match="order"):
        model.Scenario(order="sequential")


def test_the_command(
    closed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One scenario of the command line: a table, and the same as JSON. A name that no scenario has is
    refused."""
    command = ["simulate_hosts.py", "--json", str(tmp_path / "out.json"), "--assumptions", "--one"]
    monkeypatch.setattr(
        sys, "argv", [*command, "hosts=2", "ranks=2", "batch=16", "order=window", "cache=0.5", "filled=yes"]
    )
    assert closed.main() == 0
    shown = capsys.readouterr().out
    assert "closed" in shown
    assert "lockstep" in shown
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["epochs"][0]["cached"] == pytest.approx(0.5, abs=0.01)
    monkeypatch.setattr(sys, "argv", [*command, "wheels=4"])
    with pytest.raises(SystemExit):
        closed.main()
    assert "wheels" in capsys.readouterr().err
