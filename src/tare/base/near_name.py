"""Names that do not exist: what was probably meant, for verbs, options, parts, columns, levels, layers and studies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LISTED = 30  # names in a message; the near ones are never cut off


def near_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Known names like `name`, the best first.

    In this order: names that begin with it (`mobilenet` for mobilenet_v3_large, the shortest first), names that are
    spelled almost like it, dotted names that end in it (`batch` for workload.batch). Upper and lower case are the same.
    """
    import difflib  # a name that is known needs it not

    wanted = name.lower()
    lower = {each.lower(): each for each in reversed(list(known))}
    longer = sorted((each for each in lower if wanted and each.startswith(wanted)), key=len)
    close = difflib.get_close_matches(wanted, list(lower), n=most)
    ending = [each for each in lower if each.endswith(f".{wanted}")]
    return [lower[each] for each in list(dict.fromkeys([*longer, *close, *ending]))[:most]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'resnet18'?`, or nothing if no known name is near; variants (`name-...`) are all named."""
    near = near_names(name, known, 4)
    variants = [each for each in near if each.lower().startswith(f"{name.lower()}-")]
    return f"Did you mean {' or '.join(map(repr, variants or near[:1]))}?" if near else ""


def unknown_name(what: str, name: str, known: Sequence[str]) -> str:
    """`No level 'dokcer'. Available: bare, docker. Did you mean 'docker'?`"""
    among = list(dict.fromkeys([*near_names(name, known, 5), *known])) if len(known) > LISTED else known
    more = f", and {len(among) - LISTED} more" if len(among) > LISTED else ""
    sentence = f"No {what} {name!r}. Available: {', '.join(among[:LISTED]) or 'none'}{more}."
    return " ".join(filter(None, (sentence, did_you_mean(name, known))))
