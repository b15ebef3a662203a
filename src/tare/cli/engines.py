"""What platforms need for the length of a run: asked of every platform that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from tare.cli.options import say

if TYPE_CHECKING:
    from tare.parts.protocols import Platform
    from tare.study.model import Study


def needs_of_study(study: Study) -> AbstractContextManager[None]:
    """What the platforms of a study need on this device: those inside another one have no need of it."""
    beside = [level.stack for level in study.tenancies if level.stack is not None]
    return needs_of(stack[0].name for stack in (*study.platforms, *beside))


@contextmanager
def needs_of(names: Iterable[str]) -> Iterator[None]:
    """Each of these platforms has what it needs (an engine that runs), until the end; says what was done for it."""
    from tare.host import LocalHost

    with ExitStack() as stack:
        for name in dict.fromkeys(names):
            if sentence := stack.enter_context(platform(name).for_run(LocalHost())):
                say(sentence)
        yield


def left_overs() -> list[str]:
    """What `stop_left_overs` would stop, in words; nothing is changed."""
    from tare.host import LocalHost
    from tare.parts.find import names

    host = LocalHost()
    found = [platform(name).left_by_dead_run(host) for name in names("platforms")]
    return [thing for thing in found if thing]


def stop_left_overs() -> list[str]:
    """Stop what platforms needed in a run that died, unless another run uses it."""
    from tare.host import LocalHost
    from tare.parts.find import names

    host = LocalHost()
    said = [platform(name).after_dead_run(host) for name in names("platforms")]
    return [sentence for sentence in said if sentence]


def platform(name: str) -> type[Platform]:
    """The platform of this name."""
    from tare.parts.find import find
    from tare.parts.protocols import Platform

    found = find("platforms", name)
    assert issubclass(found, Platform)
    return found
