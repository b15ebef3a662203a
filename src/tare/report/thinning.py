"""As few points as a chart can show, with the extremes kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def thinned(times: npt.NDArray[Any], values: npt.NDArray[Any], most: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """At most about `most` points: of each stretch the smallest and the largest, where they lie."""
    import numpy as np

    if len(values) <= most:
        return times, values
    stretches = max(1, most // 2)
    length = -(-len(values) // stretches)
    padded = np.full(stretches * length, np.nan)
    padded[: len(values)] = values
    table = padded.reshape(stretches, length)
    begins = np.arange(stretches) * length
    whole = begins < len(values)  # the last stretches may be empty
    low = np.nanargmin(table[whole], axis=1) + begins[whole]
    high = np.nanargmax(table[whole], axis=1) + begins[whole]
    chosen = np.unique(np.concatenate([low, high]))
    return times[chosen], values[chosen]
