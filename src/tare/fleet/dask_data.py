"""What dask may bring into the controller: plain data, never code.

dask's messages may hold pickles, and a pickle runs what it names. The controller hands code to workers, which is what a
cluster is for; nothing has to come back but answers made of texts, numbers, bytes, lists and objects. So in the process
of the controller dask unpickles those alone, and exceptions of Python by their names (docs/decisions/0029-trust.md has
the boundary in both directions). An answer is looked at once more before it is used: one device's nonsense is its
own trouble.
"""

from __future__ import annotations

import builtins
import io
import json
import logging
import pickle
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from tare.base.errors import StudyError, TareError
from tare.base.untrusted import MOST_VALUES, check_depth

ENDED = frozenset({"answered", "unreachable", "refused"})
MOST_RECORD_BYTES = 512 << 20
_MOST_TEXT = 1 << 20
_LOOPBACK = ("tcp://127.", "tcp://localhost:", "tcp://[::1]")


class NotData(pickle.UnpicklingError, TypeError):
    """A message names code; dask passes over what cannot be loaded for this reason."""


_PLAIN = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


class _Inert:
    """In the place of a frame or a traceback: holds nothing, does nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


def _exception(kind: Any, attributes: Any, *_: Any) -> BaseException:
    """As tblib makes one again, with its arguments alone."""
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise NotData("a device sent an exception that is none")
    made = kind.__new__(kind)
    made.args = tuple(str(each) for each in attributes.get("args", ()))
    return made


_OF_TBLIB: dict[tuple[str, str], Any] = {
    ("tblib.pickling_support", "unpickle_exception_with_attrs"): _exception,
    ("tblib.pickling_support", "unpickle_traceback"): lambda *_: None,
    **{("tblib", name): _Inert for name in ("Frame", "Code", "Traceback")},
    ("distributed.scheduler", "WorkerState"): _Inert,
}


class _DataOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = getattr(builtins, name, None) if module == "builtins" else None
        if isinstance(found, type) and (found in _PLAIN or issubclass(found, Exception)):
            return found
        if (module, name) in _OF_TBLIB:
            return _OF_TBLIB[module, name]
        if (module, name) == ("distributed.scheduler", "KilledWorker"):
            from distributed.scheduler import KilledWorker

            return KilledWorker
        raise NotData(f"a device sent {module}.{name} where only data may come")


def loads(data: Any, *, buffers: Any = (), **_: Any) -> Any:
    """As `pickle.loads`, for plain data."""
    return _DataOnly(io.BytesIO(bytes(data)), buffers=buffers or None).load()


def refuse_code() -> None:
    """From now on dask loads data alone in this process."""
    import distributed.client
    import distributed.protocol.pickle as of_dask

    careful = SimpleNamespace(**{**vars(pickle), "loads": loads})
    of_dask.pickle = careful
    distributed.client.pickle = careful
    logging.getLogger("distributed.protocol.pickle").setLevel(logging.WARNING)
    logging.getLogger("distributed.protocol.core").setLevel(logging.CRITICAL + 1)  # a traceback for each; we say it


def checked_answer(found: Any) -> dict[str, Any]:
    """The answer, if it is one that a worker of ours gives; TareError where it is not."""
    if not isinstance(found, dict) or found.get("ended") not in ENDED:
        raise TareError("its answer is none that tare gives")
    if not isinstance(found.get("broken"), list) or not all(isinstance(each, str) for each in found["broken"]):
        raise TareError("its answer does not say how often the line broke")
    if not isinstance(found.get("text", ""), str) or len(found.get("text", "")) > _MOST_TEXT:
        raise TareError("the text of its answer is none")
    if not isinstance(records := found.get("records", b""), bytes) or len(records) > MOST_RECORD_BYTES:
        raise TareError("the records that it sends are no bytes, or too many")
    reported = found.get("said", {})
    if not isinstance(reported, Mapping) or not all(isinstance(key, str) for key in reported):
        raise TareError("what it reports is no object")
    if reported.get("code") is not None and not isinstance(reported["code"], int):
        raise TareError(f"the code of its trial is {str(reported['code'])[:80]!r}")
    if found["ended"] == "answered" and "said" not in found:
        raise TareError("its answer is empty")
    try:
        check_depth(dict(reported), most_values=MOST_VALUES)  # a pickle may hold the same list a billion times
        said = json.loads(json.dumps(dict(reported), allow_nan=False))
    except (RecursionError, TypeError, ValueError) as error:
        raise TareError(f"what it reports is no JSON: {error}") from error
    return {"text": "", "records": b"", **found, **({"said": said} if "said" in found else {})}


def over_tls(address: str) -> str:
    """The address of a cluster: TLS unless it says otherwise, and plain TCP on this machine alone."""
    if "://" not in address:
        return f"tls://{address}"
    if address.startswith("tcp://") and not address.startswith(_LOOPBACK):
        raise StudyError(
            f"{address} is not encrypted: whoever can reach it runs what they like on the devices.\n"
            "Use tls:// with the cluster's keys (DASK_DISTRIBUTED__COMM__TLS__...), or a tunnel: tcp:// is accepted on "
            "127.0.0.1 alone."
        )
    return address
