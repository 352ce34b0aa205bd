"""JPEGs written bit by bit, with Huffman tables that no encoder would choose."""

from __future__ import annotations

import random
from collections.abc import Sequence

ZRL, EOB = 0xF0, 0x00


def prefix_codes(lengths: Sequence[int]) -> list[str]:
    """The codes that T.81 annex C gives to sorted lengths, as strings of 0 and 1."""
    codes, code, before = [], 0, lengths[0]
    for length in lengths:
        code <<= length - before
        before = length
        codes.append(format(code, f"0{length}b"))
        code += 1
    return codes


def segment(marker: int, payload: bytes) -> bytes:
    """A marker segment."""
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2, "big") + payload


def padded(bits: str) -> bytes:
    """Coded bits as bytes: filled up with ones, zeros stuffed in behind 0xFF."""
    bits += "1" * (-len(bits) % 8)
    data = b"".join(int(bits[i : i + 8], 2).to_bytes(1, "big") for i in range(0, len(bits), 8))
    return data.replace(b"\xff", b"\xff\0")


def file_of(
    coded: bytes,
    width: int,
    height: int = 8,
    *,
    dc: dict[int, str],
    ac: dict[int, str],
    sampling: Sequence[tuple[int, int]] = ((1, 1),),
    restart: int = 0,
) -> bytes:
    """A baseline JPEG around coded data; dc and ac are codes by symbol, in the order of their lengths."""
    count = len(sampling)
    tables = b""
    for kind, codes in ((0x00, dc), (0x10, ac)):
        lengths = [len(code) for code in codes.values()]
        tables += segment(0xC4, bytes([kind, *(lengths.count(i) for i in range(1, 17)), *codes]))
    frame = b"".join(bytes([i + 1, h << 4 | v, 0]) for i, (h, v) in enumerate(sampling))
    scan = b"".join(bytes([i + 1, 0]) for i in range(count))
    return (
        b"\xff\xd8"
        + segment(0xDB, b"\0" + b"\1" * 64)
        + segment(
            0xC0, b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([count]) + frame
        )
        + tables
        + (segment(0xDD, restart.to_bytes(2, "big")) if restart else b"")
        + segment(0xDA, bytes([count]) + scan + b"\0\x3f\0")
        + coded
        + b"\xff\xd9"
    )


def _codes(rng: random.Random, symbols: list[int]) -> dict[int, str]:
    while True:
        lengths = sorted(rng.randrange(1, 17) for _ in symbols)
        # The code of all ones is not used.
        if sum(2.0**-length for length in lengths) <= 1 - 2.0 ** -lengths[-1]:
            return dict(zip(symbols, prefix_codes(lengths), strict=True))


def _coded_value(rng: random.Random, codes: dict[int, str], symbol: int) -> str:
    size = symbol & 15
    return codes[symbol] + (format(rng.getrandbits(size), f"0{size}b") if size else "")


def _block(rng: random.Random, dc: dict[int, str], ac: dict[int, str]) -> str | None:
    """One block's bits; None where the table has no symbol that ends it rightly."""
    bits = _coded_value(rng, dc, rng.choice(list(dc)))
    k = 1
    while k < 64:
        fitting = [s for s in ac if s == EOB or k + (s >> 4) < 64]
        if not fitting:
            return None
        symbol = rng.choice(fitting)
        bits += _coded_value(rng, ac, symbol)
        if symbol == EOB:
            break
        k += (symbol >> 4) + 1
    return bits


def random_file(rng: random.Random) -> bytes:
    """A sound JPEG of random tables, sampling, size and restarts: every block ends where it must."""
    values = [run << 4 | size for run in range(16) for size in range(1, 11)]
    while True:
        ends = [EOB, ZRL][: rng.randrange(3)]
        ac = _codes(rng, rng.sample([*ends, *rng.sample(values, rng.randrange(1, 10))], k=len(ends) + 1))
        dc = _codes(rng, rng.sample(range(12), rng.randrange(1, 7)))
        luma = rng.choice(((1, 1), (2, 1), (2, 2), (1, 2), (4, 1)))
        sampling = rng.choice((((1, 1),), (luma, (1, 1), (1, 1))))
        across, down = rng.choice(((1, 1), (3, 2), (16, 16), (40, 30)))
        blocks = sum(h * v for h, v in sampling)
        restart = rng.choice((0, 0, 1, 3))
        coded, bits, last = b"", "", across * down
        for mcu in range(1, last + 1):
            made = [_block(rng, dc, ac) for _ in range(blocks)]
            if None in made:
                break
            bits += "".join(filter(None, made))
            if mcu == last:
                width, height = (
                    across * sampling[0][0] * 8 - rng.randrange(8),
                    down * sampling[0][1] * 8 - rng.randrange(8),
                )
                return file_of(
                    coded + padded(bits), width, height, dc=dc, ac=ac, sampling=sampling, restart=restart
                )
            if restart and mcu % restart == 0:
                coded += padded(bits) + bytes([0xFF, 0xD0 + (mcu // restart - 1) % 8])
                bits = ""
