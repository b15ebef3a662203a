"""tare weighs deep-learning workloads: what a container, a disk or a power mode costs, how sure that is, and why.

    import tare

    result = tare.weigh("python train.py", on="docker")
    result.verdict, result.effect, result.interval

    store = tare.open("out/weigh-...")
    store.trials().to_pandas()
    store.compare(by="platform", margin=0.05)

The folder list is the flow: study -> plan -> trial -> records -> analysis -> report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tare.api.results import Chart, Result, Stores, Table, compare, open
    from tare.api.studies import Study, study, weigh
    from tare.base.errors import TareError

_PUBLIC = {
    "weigh": "tare.api.studies",
    "study": "tare.api.studies",
    "Study": "tare.api.studies",
    "open": "tare.api.results",
    "Stores": "tare.api.results",
    "compare": "tare.api.results",
    "Result": "tare.api.results",
    "Chart": "tare.api.results",
    "Table": "tare.api.results",
    "TareError": "tare.base.errors",
}
__all__ = [
    "Chart",
    "Result",
    "Stores",
    "Study",
    "Table",
    "TareError",
    "compare",
    "open",
    "study",
    "weigh",
]


def __getattr__(name: str) -> Any:
    """The public names, each imported when it is first used: the verbs need few of them."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tare' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
