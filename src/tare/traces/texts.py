"""Texts in records, many at once: cut at their first zero byte, and turned into words without a look at each row."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Texts: TypeAlias = npt.NDArray[Any]  # bytes of a fixed width, or objects where some are long

_WIDE_BYTES = 256  # longer ones are kept one by one, so that one long text does not widen every row
_LOW = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SEVEN, _ONE = np.uint64(7), np.uint64(1)


def cut(fixed: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bytes_]:
    """Without what is behind the first zero byte: kernels copy a name's whole field, whatever was in it before."""
    wide = max(8, -(-fixed.dtype.itemsize // 8) * 8)
    words = np.array(fixed, dtype=f"S{wide}").view(np.uint64).reshape(len(fixed), wide // 8)
    whole = np.ones(len(fixed), bool)
    for column in words.T:
        zero = (column - _LOW) & ~column & _HIGH  # the lowest bit set is in the first byte that is zero
        lowest = zero & (~zero + _ONE)
        column &= np.where(whole, (lowest >> _SEVEN) - _ONE, np.uint64(0))
        whole &= zero == 0
    return words.reshape(-1).view(f"S{wide}")


def gathered(buffer: npt.NDArray[np.uint8], offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> Texts:
    """The texts at these places of a buffer, which has room behind its last one."""
    longest = int(length.max(initial=0))
    if longest <= _WIDE_BYTES:
        return _at(buffer, offset, length, longest)
    out = np.empty(len(offset), object)
    short = length <= _WIDE_BYTES
    out[short] = _at(buffer, offset[short], length[short], _WIDE_BYTES)
    for row in np.flatnonzero(~short).tolist():
        begin = int(offset[row])
        out[row] = buffer[begin : begin + int(length[row])].tobytes().split(b"\0", 1)[0]
    return out


def _at(
    buffer: npt.NDArray[np.uint8], offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64], longest: int
) -> npt.NDArray[np.bytes_]:
    wide = max(8, -(-longest // 8) * 8)
    anywhere = np.ndarray((max(0, len(buffer) - wide + 1),), f"V{wide}", buffer, 0, (1,))
    found = np.ascontiguousarray(anywhere[offset]).view(np.uint8).reshape(len(offset), wide)
    found[np.arange(wide) >= length[:, None]] = 0
    return cut(found.reshape(-1).view(f"S{wide}"))


def coded(texts: Texts) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The different texts, decoded, and for each row which one it has."""
    if texts.dtype == object or not len(texts):
        found, codes = np.unique(texts.astype(bytes), return_inverse=True)
        return [_decoded(text) for text in found.tolist()], codes
    if texts.dtype.itemsize % 8:
        texts = cut(texts)
    words = np.ascontiguousarray(texts).view(np.uint64).reshape(len(texts), -1)
    mixed = np.zeros(len(texts), np.uint64)
    for column in words.T:
        mixed = (mixed ^ column) * _MIX
    _, first, codes = np.unique(mixed, return_index=True, return_inverse=True)
    if (texts[first][codes] != texts).any():  # two texts with one sum: told apart the slow way
        found, codes = np.unique(texts, return_inverse=True)
        return [_decoded(text) for text in found.tolist()], codes
    return [_decoded(text) for text in texts[first].tolist()], codes


def words_of(texts: Texts) -> npt.NDArray[np.object_]:
    """The texts as str, each different one made once."""
    different, codes = coded(texts)
    return np.array(different, dtype=object)[codes] if different else np.empty(0, object)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
