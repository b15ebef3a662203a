"""Makes torchvision importable beside a CPU build of torch, whose wheel asks for an operator that only CUDA has.

transformers imports torchvision where it is installed, so that this comes before it, too.
"""

from __future__ import annotations

from typing import Any

import torch

_kept: list[Any] = []  # torch forgets a library that nothing refers to


def import_torchvision() -> Any:
    """The module; the three lines that it needs are there first, unless it loads without them."""
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        import torchvision
    return torchvision
