"""What must not be written down, and what is written in its place (faults.md S24).

A record shows that there was a secret and whether it was the same one, by the first digits of its hash. A hash this
short still lets a guess be checked, so that a secret must be one that nobody can guess; a password of four letters
is none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

from tare_inside import variables

NAMES: re.Pattern[str] = variables.SECRETS
"""A variable with such a name holds a secret; `tare_inside.fingerprint` goes by the same words."""

# In a command line a word is judged by its end, or `--tokenizer` and `--max-tokens` would hide what was measured.
_ENDING = (
    r"(?:key|token|secrets?|password|passwd|passphrase|passcode|credentials?|cookie|authorization"
    r"|(?<![a-z])(?:pass|pwd|auth|creds?))"
)
_VALUE = r"""([^\s'"]+|'[^']+'|"[^"]+")"""
_GIVEN = re.compile(rf"(?<![\w-])(-{{0,2}}[\w.-]*{_ENDING}=|--?[\w.-]*{_ENDING}\s+(?=[^\s-])){_VALUE}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"(-{{0,2}}[\w.-]*{_ENDING}=)(.+)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(rf"--?[\w.-]*{_ENDING}", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)([^/\s@]+)(?=@)")
_MASK = re.compile(r"sha256:[0-9a-f]{12}")


def mask(secret: str) -> str:
    """What stands for a secret; a mask stands for itself, so that masking twice is masking once."""
    if _MASK.fullmatch(secret):
        return secret
    return f"sha256:{hashlib.sha256(secret.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables with the values of the secret ones masked."""
    return {name: mask(str(value)) if NAMES.search(name) else value for name, value in env.items()}


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line without its secrets: `--api-key=VALUE`, `--token VALUE`, `HF_TOKEN=VALUE`, `https://me:it@...`."""
    return list(_masked_words(words))


def _masked_words(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        if _OPTION.fullmatch(before) and not word.startswith("-"):
            yield mask(word)
        elif found := _ASSIGNED.fullmatch(word):
            yield found[1] + mask(found[2])
        else:
            yield masked_text(word)
        before = word


def masked_text(text: str) -> str:
    """A text, such as a script on a command line, without the secrets that can be told by what stands before them."""
    text = _IN_ADDRESS.sub(lambda match: mask(match[1]), text)
    return _GIVEN.sub(lambda match: f"{match[1]}{mask(match[2])}", text)
