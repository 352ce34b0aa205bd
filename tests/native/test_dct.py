"""The DCT form of JPEGs: an independent reader makes the JPEG of it, byte for byte; regions of both are
the same pixels."""

from __future__ import annotations

import io
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastload._native import core
from fastload.errors import SampleError

# Of each class (0: DC, 1: AC) and number of a table: code and length of each symbol.
Codes = dict[tuple[int, int], dict[int, tuple[int, int]]]


class Bits:
    """Bits of a byte string, each byte from its lowest bit."""

    def __init__(self, data: bytes) -> None:
        self.bits = int.from_bytes(data, "little")
        self.at = 0

    def take(self, count: int) -> int:
        """The next number of so many bits."""
        value = self.bits >> self.at & ((1 << count) - 1)
        self.at += count
        return value

    def flags(self, count: int) -> list[int]:
        """The next bits, one by one."""
        value = self.take(count)
        return [value >> i & 1 for i in range(count)]


def numbered(body: bytes) -> Codes:
    """Codes of a DHT segment's tables."""
    codes: Codes = {}
    while body:
        symbols, code, table = iter(body[17:]), 0, {}
        for size in range(1, 17):
            for _ in range(body[size]):
                table[next(symbols)] = (code, size)
                code += 1
            code <<= 1
        codes[body[0] >> 4, body[0] & 15] = table
        body = body[17 + sum(body[1:17]) :]
    return codes


def segments(head: bytes) -> tuple[dict[str, Any], list[tuple[int, int, int, int]], Codes]:
    """Frame, components (h, v, DC table, AC table) and Huffman codes (symbol: code, length) of a JPEG's
    segments."""
    at, frame, sampling, components, codes = 2, {"interval": 0}, [], [], {}
    while at < len(head):
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        body = head[at + 4 : at + 2 + length]
        at += 2 + length
        if marker in (0xC0, 0xC1, 0xC2):
            frame |= {"ids": body[6::3], "progressive": marker == 0xC2}
            frame["height"], frame["width"] = (int.from_bytes(body[i : i + 2], "big") for i in (1, 3))
            sampling = [(body[7 + 3 * i] >> 4, body[7 + 3 * i] & 15) for i in range(body[5])]
            if len(sampling) == 1:
                sampling = [(1, 1)]
        elif marker == 0xDD:
            frame["interval"] = int.from_bytes(body, "big")
        elif marker == 0xDA:
            components = [(*sampling[i], body[2 + 2 * i] >> 4, body[2 + 2 * i] & 15) for i in range(body[0])]
        elif marker == 0xC4:
            codes |= numbered(body)
    if frame.get("progressive"):
        components = [(*each, 0, 0) for each in sampling]
    return frame, components, codes


def read_block(bits: Bits, last: int, orders: list[int]) -> list[int]:
    """A block's 63 AC coefficients behind a zero, in zigzag order."""
    block = [0] * 64
    if not last:
        return block
    places = [1 + i for i, flag in enumerate(bits.flags(last - 1)) if flag] + [last]
    more, negative = bits.flags(len(places)), bits.flags(len(places))
    low = dict.fromkeys(places, 0)
    for e in range(3):
        having = [place for place in places if orders[place] > e]
        for place, flag in zip(having, bits.flags(len(having)), strict=True):
            low[place] |= flag << e
    u = dict.fromkeys(places, 1)
    active, k = [place for place, flag in zip(places, more, strict=True) if flag], 2
    for place in active:
        u[place] = 0
    while active:
        larger, ones = bits.flags(len(active)), bits.flags(len(active))
        for place, goes_on, one in zip(active, larger, ones, strict=True):
            u[place] |= one << (k - 2) | (0 if goes_on else 1 << (k - 1))
        active, k = [place for place, flag in zip(active, larger, strict=True) if flag], k + 1
    for place, sign in zip(places, negative, strict=True):
        magnitude = (u[place] - 1 << orders[place]) + low[place] + 1
        block[place] = -magnitude if sign else magnitude
    return block


def read_strip(
    data: bytes, blocks: int, dc_bytes: int, orders: list[int], entries: list[int], every: int
) -> list[list[int]]:
    """The blocks of a strip, in zigzag order. Checks every entry point."""
    steps, value = Bits(data[:dc_bytes]), 0
    dc = []
    for first in range(0, blocks, 8):
        width = steps.take(4)
        for _ in range(min(8, blocks - first)):
            folded = steps.take(width)
            value += folded >> 1 ^ -(folded & 1)
            dc.append(value)
    assert (steps.at + 7) // 8 == dc_bytes
    lasts_bytes = (6 * blocks + 7) // 8
    lasts, planes, made = (
        Bits(data[dc_bytes : dc_bytes + lasts_bytes]),
        Bits(data[dc_bytes + lasts_bytes :]),
        [],
    )
    for i in range(blocks):
        if i and i % every == 0:
            assert planes.at == sum(entries[: i // every])
        made.append([dc[i], *read_block(planes, lasts.take(6), orders)[1:]])
    assert (planes.at + 7) // 8 == len(data) - dc_bytes - lasts_bytes
    return made


class Coded:
    """Coded data in the making."""

    def __init__(self, codes: Codes, ones: bool) -> None:
        self.codes, self.ones = codes, ones
        self.out, self.text, self.restarts = bytearray(), [], 0

    def bits(self, value: int, size: int) -> None:
        """So many bits of a number."""
        if size:
            self.text.append(f"{value:0{size}b}")

    def symbol(self, table: tuple[int, int], symbol: int, value: int = 0, size: int = 0) -> None:
        """A symbol's code and the bits of a value behind it."""
        self.bits(*self.codes[table][symbol])
        self.bits(value if value > 0 else value + (1 << size) - 1, size)

    def end(self) -> None:
        """Ends an interval."""
        bits = "".join(self.text)
        bits += "01"[self.ones] * (-len(bits) % 8)
        for i in range(0, len(bits), 8):
            self.out.append(int(bits[i : i + 8], 2))
            self.out.extend(b"\0" * (self.out[-1] == 0xFF))
        self.text.clear()

    def restart(self) -> None:
        """Ends an interval with its marker."""
        self.end()
        self.out += bytes([0xFF, 0xD0 + self.restarts % 8])
        self.restarts += 1


def write_scan(
    rows: list[list[list[int]]], blocks: list[tuple[int, int, int]], interval: int, coded: Coded
) -> bytes:
    """Coded data of blocks in the order of the scan: each row's MCUs, each MCU's blocks with (component,
    DC table, AC table)."""
    before, mcu = [0, 0, 0], 0
    for i, block in enumerate(block for row in rows for block in row):
        component, dc, ac = blocks[i % len(blocks)]
        if i % len(blocks) == 0:
            if interval and mcu and mcu % interval == 0:
                coded.restart()
                before = [0, 0, 0]
            mcu += 1
        step, run = block[0] - before[component], 0
        before[component] = block[0]
        coded.symbol((0, dc), abs(step).bit_length(), step, abs(step).bit_length())
        for value in block[1:]:
            if not value:
                run += 1
                continue
            for _ in range(run // 16):
                coded.symbol((1, ac), 0xF0)
            coded.symbol((1, ac), run % 16 << 4 | abs(value).bit_length(), value, abs(value).bit_length())
            run = 0
        if run:
            coded.symbol((1, ac), 0)
    coded.end()
    return bytes(coded.out)


class Scan:
    """A progressive scan, from position ``start`` to ``stop``; ``high`` and ``low``: bits that are not
    sent before and after."""

    def __init__(self, coded: Coded, start: int, stop: int, high: int, low: int) -> None:
        self.coded, self.positions, self.high, self.low = coded, range(start, stop + 1), high, low
        self.before: dict[int, int] = {}
        self.ended, self.corrections = 0, []

    def end_run(self, ac: int) -> None:
        """The run of ended blocks, and the corrections in them."""
        if self.ended:
            size = self.ended.bit_length() - 1
            self.coded.symbol((1, ac), size << 4)
            self.coded.bits(self.ended - (1 << size), size)
            self.correct(self.corrections)
        self.ended, self.corrections = 0, []

    def correct(self, bits: list[int]) -> None:
        """Corrections of coefficients that were sent before."""
        for bit in bits:
            self.coded.bits(bit, 1)

    def dc(self, block: list[int], component: int, dc: int) -> None:
        """A DC coefficient, or a bit of it."""
        value = block[0] >> self.low
        if self.high:
            self.coded.bits(value & 1, 1)
            return
        step = value - self.before.get(component, 0)
        self.before[component] = value
        self.coded.symbol((0, dc), abs(step).bit_length(), step, abs(step).bit_length())

    def ac(self, block: list[int], ac: int) -> None:
        """AC coefficients: new ones, and corrections of others."""
        sizes = {k: abs(block[k]) >> self.low for k in self.positions}
        new = [k for k in self.positions if sizes[k] and not (self.high and sizes[k] > 1)]
        zeros, mine = 0, []
        for k in self.positions:
            if not sizes[k]:
                zeros += 1
                continue
            while zeros > 15 and (not self.high or k <= max(new, default=0)):
                self.end_run(ac)
                self.coded.symbol((1, ac), 0xF0)
                self.correct(mine)
                zeros, mine = zeros - 16, []
            if k not in new:
                mine.append(sizes[k] & 1)
                continue
            self.end_run(ac)
            value, size = (
                (sizes[k], sizes[k].bit_length()) if block[k] > 0 else (-sizes[k], sizes[k].bit_length())
            )
            self.coded.symbol((1, ac), zeros << 4 | size, value, size)
            self.correct(mine)
            zeros, mine = 0, []
        if zeros or mine:
            self.ended, self.corrections = self.ended + 1, self.corrections + mine
            if self.ended == 0x7FFF or len(self.corrections) > 937:
                self.end_run(ac)


Blocks = list[list[list[list[int]]]]


def write_progressive_scan(
    header: bytes,
    codes: Codes,
    frame: dict[str, Any],
    sampling: list[tuple[int, int]],
    made: Blocks,
    ones: bool,
) -> bytes:
    """Coded data of a progressive scan, of each component's rows of blocks."""
    count = header[0]
    which = [
        (frame["ids"].index(header[1 + 2 * i]), header[2 + 2 * i] >> 4, header[2 + 2 * i] & 15)
        for i in range(count)
    ]
    start, stop, bits = header[1 + 2 * count :]
    h, v = sampling[0]
    if count == 1:
        c, dc, ac = which[0]
        samples = [
            math.ceil(frame["width"] * sampling[c][0] / h),
            math.ceil(frame["height"] * sampling[c][1] / v),
        ]
        across, down = (math.ceil(side / 8) for side in samples)
        mcus = [[(c, dc, ac, y, x)] for y in range(down) for x in range(across)]
    else:
        across, down = -(-frame["width"] // (8 * h)), -(-frame["height"] // (8 * v))
        mcus = [
            [
                (c, dc, ac, row * sampling[c][1] + y, column * sampling[c][0] + x)
                for c, dc, ac in which
                for y in range(sampling[c][1])
                for x in range(sampling[c][0])
            ]
            for row in range(down)
            for column in range(across)
        ]
    scan = Scan(Coded(codes, ones), start, stop, bits >> 4, bits & 15)
    for n, mcu in enumerate(mcus):
        if n and frame["interval"] and n % frame["interval"] == 0:
            scan.end_run(which[0][2])
            scan.coded.restart()
            scan.before = {}
        for c, dc, ac, y, x in mcu:
            if start:
                scan.ac(made[c][y][x], ac)
            else:
                scan.dc(made[c][y][x], c, dc)
    scan.end_run(which[0][2])
    scan.coded.end()
    return bytes(scan.coded.out)


def progressive_of(
    head: bytes, tail: bytes, frame: dict[str, Any], sampling: list[tuple[int, int]], made: Blocks, ones: bool
) -> bytes:
    """A progressive file: its segments, and behind each scan's header the coded data."""
    out, codes, parts = bytearray(head[:2]), {}, head[2:] + tail
    frame["interval"] = 0
    while parts[1] != 0xD9:
        length = 2 + int.from_bytes(parts[2:4], "big")
        marker, body = parts[1], parts[4:length]
        out += parts[:length]
        parts = parts[length:]
        if marker == 0xC4:
            codes |= numbered(body)
        elif marker == 0xDD:
            frame["interval"] = int.from_bytes(body, "big")
        elif marker == 0xDA:
            out += write_progressive_scan(body, codes, frame, sampling, made, ones)
    return bytes(out + parts)


def jpeg_of(form: bytes) -> bytes:
    """The JPEG of a DCT form, by docs/format.md alone."""
    assert form[:5] == b"\xfcDCT\x01"
    head_bytes, tail_bytes, data_bytes = (int.from_bytes(form[i : i + 4], "little") for i in (8, 12, 16))
    start_width, *widths = form[20:25]
    behind = max(256, head_bytes + tail_bytes)
    head_at = len(form) - behind
    head, tail = (
        form[head_at : head_at + head_bytes],
        form[head_at + head_bytes : head_at + head_bytes + tail_bytes],
    )
    data = form[head_at - data_bytes : head_at]
    frame, components, codes = segments(head)
    h, v, *_ = components[0]
    across, down, every = -(-frame["width"] // (8 * h)), -(-frame["height"] // (8 * v)), form[6]
    table_at = 28 + 24 * len(components)
    table = Bits(form[table_at : head_at - data_bytes])
    orders = []
    for c in range(len(components)):
        above = [int.from_bytes(form[28 + 24 * c + 8 * e :][:8], "little") for e in range(3)]
        orders.append([sum(each >> j & 1 for each in above) for j in range(64)])
    lanes = [(c, row) for c, (_, rows, *_) in enumerate(components) for row in range(rows)]
    strips = []
    for _ in range(down):
        for c, row in lanes:
            numbers = [table.take(start_width), table.take(widths[c > 0])]
            strips.append(
                (c, row, *numbers, [table.take(widths[2 + (c > 0)]) for _ in range(-(-across // every) - 1)])
            )
    made: list[dict[tuple[int, int], list[list[int]]]] = [{} for _ in range(down)]
    for i, (c, row, start, dc_bytes, entries) in enumerate(strips):
        stop = strips[i + 1][2] if i + 1 < len(strips) else data_bytes
        width = components[c][0]
        made[i // len(lanes)][c, row] = read_strip(
            data[start:stop], across * width, dc_bytes, orders[c], entries, every * width
        )
    if form[5] & 2:
        planes = [
            [strip[c, row] for strip in made for row in range(components[c][1])]
            for c in range(len(components))
        ]
        return progressive_of(head, tail, frame, [each[:2] for each in components], planes, bool(form[5] & 1))
    order = [
        (c, row, x)
        for c, (width, rows, *_) in enumerate(components)
        for row in range(rows)
        for x in range(width)
    ]
    rows = [
        [strip[c, row][mcu * components[c][0] + x] for mcu in range(across) for c, row, x in order]
        for strip in made
    ]
    blocks = [(c, *components[c][2:]) for c, _, _ in order]
    return head + write_scan(rows, blocks, frame["interval"], Coded(codes, bool(form[5] & 1))) + tail


def picture(seed: int, width: int, height: int, *, grey: bool = False, **options: object) -> bytes:
    """A JPEG of slopes and noise."""
    draws = np.random.default_rng(seed)
    values = np.add.outer(5 * np.arange(height), 3 * np.arange(width))[..., None] + draws.integers(
        0, 60, (height, width, 3)
    )
    image = Image.fromarray((values % 256).astype(np.uint8))
    out = io.BytesIO()
    (image.convert("L") if grey else image).save(out, "JPEG", **options)  # type: ignore[arg-type]
    return out.getvalue()


CASES = [
    {"subsampling": 0, "quality": 90},
    {"subsampling": 1, "quality": 75},
    {"subsampling": 2, "quality": 50},
    {"subsampling": 2, "quality": 100},
    {"subsampling": 2, "quality": 30, "restart_marker_blocks": 3},
    {"grey": True, "quality": 85},
    {"subsampling": 2, "quality": 92, "progressive": True},
    {"subsampling": 0, "quality": 40, "progressive": True, "restart_marker_blocks": 5},
    {"grey": True, "quality": 85, "progressive": True},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_an_independent_reader_makes_the_jpeg(options: dict[str, object]) -> None:
    """The format page's rules alone lead from the form to the file's bytes, and so does restore()."""
    coder = core.DctCoder()
    for seed, (width, height) in enumerate([(1, 1), (17, 33), (150, 61)]):
        data = picture(seed, width, height, **options)
        form, reason = coder.encode(data)
        assert form is not None
        assert reason == ""
        assert core.is_dct_form(form)
        assert not core.is_dct_form(data)
        assert jpeg_of(form) == data
        assert coder.restore(form) == data


GOLDEN = Path(__file__).parent / "data" / "dct"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jpg")), ids=lambda path: path.stem)
def test_stored_forms_stay_readable(path: Path) -> None:
    """The forms under data/dct are the JPEGs beside them, by the format page and by restore(), and have
    their pixels."""
    data, form = path.read_bytes(), path.with_suffix(".dct").read_bytes()
    assert jpeg_of(form) == data
    assert core.DctCoder().restore(form) == data
    made, truth = core.RegionDecoder(), core.RegionDecoder()
    assert made.open(form) == truth.open(data)
    box = (0, 0, *truth.open(data))
    for eighths in (1, 2, 4, 8):
        assert made.decode(box, eighths) == truth.decode(box, eighths)
        np.testing.assert_array_equal(made.pixels(), truth.pixels())


@pytest.mark.parametrize("options", CASES, ids=str)
def test_regions_are_those_of_the_jpeg(options: dict[str, object]) -> None:
    """RegionDecoder decodes a box of the form, at any scale, to the pixels of the JPEG's box."""
    draws = random.Random(7)
    data = picture(9, 400, 300, **options)
    form, _ = core.DctCoder().encode(data)
    first, second = core.RegionDecoder(), core.RegionDecoder()
    for _ in range(30):
        x, y = draws.randrange(400), draws.randrange(300)
        box = (x, y, draws.randint(1, 400 - x), draws.randint(1, 300 - y))
        eighths = draws.choice([1, 2, 4, 8])
        assert first.open(data) == second.open(form) == (400, 300)
        assert first.decode(box, eighths) == second.decode(box, eighths)
        np.testing.assert_array_equal(first.pixels(), second.pixels())
        assert not second.fell_back


def test_a_file_that_stays_a_jpeg_says_why() -> None:
    """encode() returns None with the reason; restore() and open() of what is damaged raise."""
    coder = core.DctCoder()
    data = picture(3, 90, 80, progressive=True)
    cut = data[: data.rindex(b"\xff\xda")] + b"\xff\xd9"
    form, reason = coder.encode(cut)
    assert form is None
    assert "incomplete" in reason
    data = picture(3, 90, 80)
    assert coder.encode(data[:-100])[0] is None
    assert coder.encode(data, max_pixels=90 * 80 - 1)[0] is None
    assert coder.encode(b"")[0] is None
    form, _ = coder.encode(data)
    assert form is not None
    for wrong in (form[:-1], form[:200], b"", data, form + b"\0"):
        with pytest.raises(SampleError):
            coder.restore(wrong)
    with pytest.raises(SampleError, match="DCT form"):
        core.RegionDecoder().open(form[:-1])
    with pytest.raises(SampleError, match="limit"):
        core.RegionDecoder().open(form, 90 * 80 - 1)
