"""The states of a knob in words: a power mode is dozens of settings, of which people want those that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tare.parts.protocols import Json

MOST_SIGNS = 200  # of one state
MOST_SETTINGS = 4  # of a difference


def show(state: Json) -> str:
    """A whole state."""
    settings = _settings(state)
    text = ", ".join(f"{name} {value}" if name else value for name, value in settings.items()) or "nothing"
    return text if len(text) <= MOST_SIGNS else f"{text[:MOST_SIGNS]}…"


def apart(*states: Json) -> list[str]:
    """Each of the states, in the settings that are not the same in all of them."""
    told = [_settings(state) for state in states]
    names = list(dict.fromkeys(name for one in told for name in one))
    return _each(told, [name for name in names if len({one.get(name) for one in told}) > 1] or names)


def strange(found: Json, ours: Sequence[Json], now: Json) -> tuple[str, str, str]:
    """What was found, what we set last and what is now, in the settings that are neither found nor ours."""
    was, stands, *known = [_settings(state) for state in (found, now, *ours)]
    names = [name for name, value in stands.items() if value not in {one.get(name) for one in (was, *known)}]
    names = names or [name for name in stands if stands[name] != was.get(name)] or list(stands)
    first, last, today = _each([was, known[-1] if known else was, stands], names)
    return first, last, today


def _each(told: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    more = len(names) - MOST_SETTINGS
    tail = f" and {more} settings more" if more > 0 else ""
    return [", ".join(_one(name, one) for name in names[:MOST_SETTINGS]) + tail for one in told]


def _one(name: str, told: Mapping[str, str]) -> str:
    value = told.get(name, "missing")
    return f"{name} {value}" if name else value


def _settings(state: Json, prefix: str = "") -> dict[str, str]:
    """A state as a list of settings; one that is a single value has a setting without a name."""
    if isinstance(state, dict):
        return {
            name: text
            for key, value in state.items()
            for name, text in _settings(value, f"{prefix}.{key}" if prefix else str(key)).items()
        }
    return {prefix: _text(state)}


def _text(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_text(one) for one in value) if value else "none"
    return json.dumps(value, ensure_ascii=False)
