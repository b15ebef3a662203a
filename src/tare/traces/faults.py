"""Why a page had to be brought in: page faults told apart by what lies at the address and by who touched it.

In this order, for one fault can be called by several names:

    shared library   the address is in a mapping of a shared library: its code, or data that is relocated
    page cache       the address is in a mapping of another file: the program itself, data that is mapped
    stack            the first touch of a piece of the main thread's stack
    copy             the instruction is in memcpy or its kin, or in the kernel's copy to or from the program
    allocator        the instruction is in malloc, mmap, brk or a collector's own memory, or was called from there
    heap             any other first touch of memory without a file: what was allocated is used
    other            nothing of this is known
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

SHARED_LIBRARY, PAGE_CACHE, STACK, COPY = "shared library", "page cache", "stack", "copy"
ALLOCATOR, HEAP, OTHER = "allocator", "heap", "other"
CAUSES = (SHARED_LIBRARY, ALLOCATOR, COPY, PAGE_CACHE, HEAP, STACK, OTHER)

_LIBRARY = re.compile(r"(\.so(\.[\w.+-]+)?|/ld-[\w.-]+)$")
_COPY = re.compile(
    r"^_*(arch_|asm_|generic_|raw_)*(mem(cpy|move|pcpy)|copy_(to|from|in)_|copy_user|rep_movs|str(n)?cpy|bcopy)"
    r"|copy_(to|from)_user|copy_page_(to|from)_iter|copy_folio|runtime\.memmove$"
)
_ALLOCATOR = re.compile(
    r"(^|[_:.])(malloc|calloc|realloc|free|memalign|aligned_alloc)(\b|_|$|@)"
    r"|^_*(libc_)?(s?brk|mmap|mremap|munmap|madvise)(64)?($|@)"
    r"|^_?_?(int_malloc|int_free|libc_malloc|sysmalloc|systrim|malloc_consolidate|arena_)"
    r"|^(je_|mi_|tc_)|tcmalloc|jemalloc|^operator new|_Zn[aw]|PyObject_(Malloc|Calloc|Realloc)|pymalloc|PyMem_"
    r"|[Aa]lloc(ate|ator)?\b|alloc_cpu|runtime\.(mallocgc|\(\*m(heap|cache|central)\)|persistentalloc|sysMap)"
    r"|\(\*spanSet\)|memclrNoHeapPointers|runtime\.getempty|^getempty$"
)
_ANONYMOUS = ("[heap]", "//anon", "[anon", "/dev/zero")
_NEAR = 4  # so many functions above the instruction are looked at for an allocator


def is_library(mapping: str) -> bool:
    return _LIBRARY.search(mapping) is not None


@lru_cache(maxsize=65536)
def cause_of(mapping: str, functions: tuple[str, ...]) -> str:
    """One fault: what lies at the address, and the functions that led there, innermost first."""
    if is_library(mapping):
        return SHARED_LIBRARY
    if mapping.startswith("[stack"):
        return STACK
    if mapping.startswith("/") and not mapping.startswith(_ANONYMOUS):
        return PAGE_CACHE
    if functions and _COPY.search(functions[0]):
        return COPY
    if any(_ALLOCATOR.search(function) for function in functions[:_NEAR]):
        return ALLOCATOR
    return HEAP if mapping.startswith(_ANONYMOUS) else OTHER


def causes(mappings: Iterable[str], stacks: Iterable[Sequence[str]]) -> list[str]:
    """The same for columns."""
    return [cause_of(mapping, tuple(stack[:_NEAR])) for mapping, stack in zip(mappings, stacks, strict=True)]


@dataclass(frozen=True, slots=True)
class Place:
    """Where faults came from: so many of them, and their share of all."""

    comm: str
    file: str
    function: str
    cause: str
    count: int
    share: float


def places(counted: Mapping[tuple[str, str, str, str], int]) -> tuple[Place, ...]:
    """Faults by task, file, location and cause, the most frequent first; how many there are of each is given."""
    total = sum(counted.values())
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Place(*key, count, count / total) for key, count in ranked)


def top_share(labels: npt.NDArray[np.object_] | Sequence[str], most: int = 10) -> float | None:
    """The share of the `most` commonest labels among all; None where there is none."""
    if not len(labels):
        return None
    counts = Counter(map(str, np.asarray(labels).tolist()))  # to sort texts would take ten times as long
    return sum(count for _, count in counts.most_common(most)) / counts.total()
