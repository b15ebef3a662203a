"""What someone probably meant who wrote a name that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def near_name(name: str, known: Sequence[str]) -> str | None:
    """The shortest name that begins so (`mobilenet` for mobilenet_v3_large), else the one most like it."""
    longer = [each for each in known if name and each.startswith(name)]
    return next(iter(sorted(longer, key=len) or difflib.get_close_matches(name, known, n=1)), None)


def hint(name: str, known: Sequence[str]) -> str:
    """`Did you mean 'resnet18'?`; nothing where no name is near."""
    near = near_name(name, known)
    return "" if near is None else f"Did you mean {near!r}?"
