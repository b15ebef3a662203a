"""The extension API: what a part needs is light, and names only what is there."""

import importlib
import subprocess
import sys

import pytest

HEAVY = ("numpy", "duckdb", "click", "rich", "tare.analysis", "tare.records", "tare.report", "tare.trial")
LOOK = "import sys, importlib; importlib.import_module({module!r}); print(*sorted(sys.modules))"


@pytest.mark.parametrize(
    ("module", "brings"), [("tare.ext.parts", set()), ("tare.kernel.parts.probes.ftrace", {"numpy"})]
)
def test_what_the_sampler_imports_brings_nothing_heavy(module: str, brings: set[str]):
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(module=module)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert module in loaded
    assert loaded.intersection(HEAVY) == brings


@pytest.mark.parametrize("name", ["analysis", "parts", "report", "verbs"])
def test_every_name_of_the_api_is_of_tare_and_not_private(name: str):
    module = importlib.import_module(f"tare.ext.{name}")
    names = [each for each in vars(module) if not each.startswith("__") and each != "annotations"]
    assert names
    assert not [each for each in names if each.startswith("_")]
