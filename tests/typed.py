"""A verb as it is typed, in this process: what it prints, and its exit code."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tare.cli import main


def typed(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """By the program's own `main`, as `subprocess.run` would: loading tare takes more time than most verbs."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch, chdir(cwd or Path.cwd()), redirect_stdout(out), redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):  # fmt: skip
        patch.setattr(sys, "argv", ["tare", *words])
        for name, value in env.items():
            patch.setenv(name, value)
        main()
    out.seek(0)
    err.seek(0)
    return subprocess.CompletedProcess(words, int(end.value.code or 0), out.read(), err.read())
