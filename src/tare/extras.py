"""How to get what an extra brings (`docker`, `report` ...), in one place: tare is not on PyPI, but in a checkout."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

_NAME = "tare-bench"


def pip_install(extra: str) -> str:
    """The command that brings an extra: out of the checkout that tare was installed from, where that is still there."""
    return f"pip install {shlex.quote(f'{_checkout() or _NAME}[{extra}]')}"


def _checkout() -> str | None:
    """The folder that pip, or uv, noted when it installed tare from one, editable or not."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        noted = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:  # run from its sources, by PYTHONPATH
        return None
    url = urlsplit(json.loads(noted)["url"] if noted else "")
    folder = unquote(url.path)
    return folder if url.scheme == "file" and (Path(folder) / "pyproject.toml").is_file() else None
