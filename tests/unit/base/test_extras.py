"""How to get an extra: by a command that works for someone who installed tare from a checkout."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tare.base.errors import pip_install


def noted(site: Path, monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
    """An installation of tare, of which the installer noted that it came from there."""
    folder = site / "tare_bench-9.9.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tare-bench\nVersion: 9.9\n")
    if url is not None:
        (folder / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {}}))
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.parametrize("name", ["tare", "a folder", "anne's"])
def test_an_extra_comes_out_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    checkout = tmp_path / name
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    noted(tmp_path / "site", monkeypatch, checkout.as_uri())

    assert shlex.split(pip_install("docker")) == ["pip", "install", f"{checkout}[docker]"]


@pytest.mark.parametrize("url", [None, "file:///no/such/checkout", "https://example.org/tare.whl"])
def test_without_a_checkout_it_goes_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    noted(tmp_path / "site", monkeypatch, url)

    assert pip_install("report") == "pip install 'tare-bench[report]'"


def test_where_tare_is_not_installed_but_on_the_path_it_goes_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])

    assert pip_install("serve") == "pip install 'tare-bench[serve]'"
