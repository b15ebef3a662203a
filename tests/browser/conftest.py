"""One browser for the tests of a module: Debian's chromium, driven by playwright; pages that more than one looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from figure_stores import STORES, report


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The report of each of `STORES`, made when it is first looked at."""
    return cache(lambda name: report(STORES[name](tmp_path_factory.mktemp("pages") / name)))
