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
import logging
import pickle
import pickletools
from types import SimpleNamespace
from typing import Any


class NotData(pickle.UnpicklingError, TypeError):
    """A message names code; dask passes over what cannot be loaded for this reason."""


class _Inert:
    """In the place of a frame or a traceback: holds nothing, does nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


class _Kind:
    """In the place of a kind of exception: makes one whose arguments are short to print, and calls nothing else."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type[Exception]) -> None:
        # What a message would set of it afterwards stays unset: the arguments once more, notes, a cause.
        plain = {"__setstate__": lambda *_: None, "__str__": BaseException.__str__}
        self._kind: type[Exception] = type(kind.__name__, (kind,), plain)

    def __call__(self, *args: Any) -> Exception:
        made = self._kind.__new__(self._kind)
        made.args = tuple(map(_printable, args))
        return made


def _printable(value: Any) -> str:
    """Lists that hold each other many times are small as data, and of any size as text."""
    if isinstance(value, str | bytes):
        return str(value)
    return str(value) if isinstance(value, float | None) or (isinstance(value, int) and abs(value) < 2**63) else "..."


def _exception(kind: Any, attributes: Any, *_: Any) -> Exception:
    """As tblib makes one again, with its arguments alone."""
    if not isinstance(kind, _Kind) or not isinstance(attributes, dict):
        raise NotData("a device sent an exception that is none")
    args = attributes.get("args", ())
    return kind(*(args if isinstance(args, tuple) else ()))


_OF_TBLIB: dict[tuple[str, str], Any] = {
    ("tblib.pickling_support", "unpickle_exception_with_attrs"): _exception,
    ("tblib.pickling_support", "unpickle_traceback"): lambda *_: None,
    **{("tblib", name): _Inert for name in ("Frame", "Code", "Traceback")},
    ("distributed.scheduler", "WorkerState"): _Inert,
}


_PLAIN_TYPES = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
_CALLS = frozenset({"REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST", "BUILD"})
_NUMBERS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


class _DataOnly(pickle.Unpickler):
    """Lists, sets, dicts, texts and bytes have codes of their own in a message: none of their types need be called.

    dask names the type of what follows, in a message that calls nothing.
    """

    def __init__(self, message: bytes, buffers: Any) -> None:
        super().__init__(io.BytesIO(message), buffers=buffers)
        self._calls = False
        for operation, value, _ in pickletools.genops(message):
            self._calls = self._calls or operation.name in _CALLS
            # Room for as many things as its number says is made at once, in a message of a few bytes.
            if operation.name in _NUMBERS and isinstance(value, int) and value > len(message):
                raise NotData(f"a device sent a message of {len(message)} bytes that numbers a thing {value}")

    def find_class(self, module: str, name: str) -> Any:
        found = getattr(builtins, name, None) if module == "builtins" else None
        if isinstance(found, type) and issubclass(found, Exception):
            return _Kind(found)
        if found in _PLAIN_TYPES and not self._calls:
            return found
        if (module, name) in _OF_TBLIB:
            return _OF_TBLIB[module, name]
        if (module, name) == ("distributed.scheduler", "KilledWorker"):
            from distributed.scheduler import KilledWorker

            return _Kind(KilledWorker)
        raise NotData(f"a device sent {module}.{name} where only data may come")


def loads(data: Any, *, buffers: Any = (), **_: Any) -> Any:
    """As `pickle.loads`, for plain data."""
    try:
        return _DataOnly(bytes(data), buffers or None).load()
    except ValueError as error:
        raise NotData(f"a device sent what is no message: {error}") from error


def refuse_code() -> None:
    """From now on dask loads data alone in this process."""
    import distributed.client
    import distributed.protocol.pickle as of_dask

    careful = SimpleNamespace(**{**vars(pickle), "loads": loads})
    of_dask.pickle = careful
    distributed.client.pickle = careful
    logging.getLogger("distributed.protocol.pickle").setLevel(logging.WARNING)
    logging.getLogger("distributed.protocol.core").setLevel(logging.CRITICAL + 1)  # a traceback for each; we say it
