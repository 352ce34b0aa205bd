"""The parts of the native module: names go downward, C declarations stand once."""

from __future__ import annotations

import re
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "fastload" / "_native"
DEFINITION = re.compile(
    r"^(?:cdef )?(?:class|def) (\w+)|^cdef (?:inline |const )*[\w.]+ \**(\w+)\(|^(\w+) = |"
    r"^cdef class (\w+)|^cdef long ((?:\w+ = 0(?:, )?)+)",
    re.M,
)


def parts() -> dict[str, str]:
    """The code of each part, without comments and strings, in the order in which core.pyx includes them."""
    order = re.findall(r'^include "(\w+\.pxi)"$', (NATIVE / "core.pyx").read_text(encoding="utf-8"), re.M)
    assert sorted(order) == sorted(path.name for path in NATIVE.glob("*.pxi"))
    found = {}
    for name in order:
        text = re.sub(r'""".*?"""', "", (NATIVE / name).read_text(encoding="utf-8"), flags=re.S)
        text = re.sub(r'"[^"\n]*"', '""', text)
        found[name] = re.sub(r"#.*", "", text)
    return found


def defined(code: str) -> set[str]:
    """The module-level names of a part."""
    names = {
        name
        for groups in DEFINITION.findall(code)
        for group in groups
        for name in re.findall(r"[A-Za-z_]\w*", group)
    }
    return {name for name in names if len(name) > 2}


def test_a_part_uses_names_of_earlier_parts_only() -> None:
    """A name that a later part defines is met nowhere above it."""
    codes = list(parts().items())
    assert {
        "check",
        "Store",
        "_choice",
        "Program",
        "Ring",
        "Engine",
        "SharedSlot",
        "_live_engines",
    } <= set().union(*(defined(code) for _, code in codes))
    upward = [
        (name, word, later)
        for i, (name, code) in enumerate(codes)
        for later, other in codes[i + 1 :]
        for word in defined(other) - defined(code)
        if re.search(rf"(?<![\w.]){word}\b(?!\s*=[^=])", code)
    ]
    assert upward == []


def test_a_c_name_is_declared_once() -> None:
    """Declarations of csrc stand in c_*.pxd alone, each name in one, under the header of its room."""
    seen: dict[str, str] = {}
    for path in sorted(NATIVE.glob("c_*.pxd")):
        text = path.read_text(encoding="utf-8")
        rooms = set(re.findall(r'^cdef extern from "(\w+)/\w+\.h" nogil:$', text, re.M))
        assert rooms == {path.stem[2:]}
        names = re.findall(r"ctypedef (?:struct|enum) (\w+)", text) + re.findall(
            r"^    (?!ctypedef)[\w *]*?(fl_\w+)\(", text, re.M
        )
        for name in names:
            assert name not in seen, (name, seen.get(name), path.name)
            seen[name] = path.name
    assert len(seen) > 60
    for name, code in parts().items():
        assert not re.search(r'cdef extern from ""[^\n]*\n\s+\w+ fl_', code), name
