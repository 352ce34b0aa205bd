"""lightly's transforms of lazy images in torchvision's Compose: lightly's tensors and random numbers, and one
recipe for each view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from compositions import functions_exchanged, opened, shown, three_times
from lazy_helpers import both, counted
from torchvision.transforms import v2

from fastload.composing import compose_v2

lightly = pytest.importorskip(
    "lightly.transforms", reason="lightly is not installed, or torchvision, which it imports"
)
NAMES = (
    *("AIM", "BYOL", "DINO", "FastSiam", "IBOT", "MAE", "MMCR", "MSN", "MoCoV1", "MoCoV2", "SMoG"),
    *("SimCLR", "SimSiam", "SwaV", "TiCo", "VICReg", "VICRegL", "WMSE"),
)


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """Compose is exchanged, as in a worker, and knows lightly."""
    from fastload.composing import steps_lightly

    forward, inside = v2.Compose.forward, dict(compose_v2.INSIDE_OF_OTHERS)
    compose_v2.exchange()
    steps_lightly.exchange()
    with functions_exchanged():
        yield
    v2.Compose.forward, compose_v2.INSIDE_OF_OTHERS = forward, inside  # type: ignore[method-assign]


@pytest.mark.filterwarnings("ignore:The function `get_image_size")
@pytest.mark.parametrize("name", NAMES)
def test_transforms(name: str) -> None:
    """Every view, bit for bit, and the generators' states; of the known ones no image is made on the way."""
    transform = getattr(lightly, f"{name}Transform")()
    plain, lazy = both(three_times(lambda: shown(transform(opened()))))
    assert lazy == plain
    told = counted(lambda: transform(opened()))
    assert not told.ended
    assert told.composed["ToImage"] == told.straight


def test_a_programs_code_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of ToTensor's that was replaced, and a subclass."""
    to_tensor = type(lightly.ToTensor())
    made = v2.Compose([v2.Resize(20), lightly.ToTensor(), v2.Normalize([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])])
    with monkeypatch.context() as patched:
        own = to_tensor.__call__
        patched.setattr(to_tensor, "__call__", lambda self, image: own(self, image) + 1)
        plain, lazy = both(lambda: shown(made(opened())))
        assert lazy == plain
    plain_before, lazy_before = both(lambda: shown(made(opened())))
    assert lazy_before == plain_before != plain

    class Other(to_tensor):  # type: ignore[misc,valid-type]
        def __call__(self, image: Any) -> Any:
            return super().__call__(image) + 1

    made.transforms[1] = Other()
    assert both(lambda: shown(made(opened()))) == (plain, plain)
