"""What must not be written down, and what is written in its place (faults.md S24): one rule for all that tare keeps.

`masked_text` finds secrets by what stands before them: on command lines, in values of variables, in what a workload
prints and in messages of errors. `Scrubber` also knows the secrets themselves, once they were seen in a study or in
the environment, and masks them wherever they turn up, with nothing before them.

A record shows that there was a secret and whether it was the same one, by a digest with a key of this machine (HMAC).
The key lies in the state folder, for its user alone, and is in no store: without it no guess can be checked.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets as random
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from tare.base.files import state_dir
from tare_inside import jobs, launch

_SERVICES = r"DSN|WEBHOOK|CONN\w*_?STR|(DATABASE|DB|REDIS|MONGO\w*|AMQP|BROKER|CELERY\w*|POSTGRES\w*|MYSQL\w*)_?UR[IL]"
NAMES = re.compile(f"{jobs.SECRETS.pattern}|{_SERVICES}", re.IGNORECASE)
"""A variable with such a name holds a secret, or an address with one."""

# In a command line a word is judged by its end, or `--tokenizer` and `--max-tokens` would hide what was measured.
_LONG = ("key", "token", "secret", "secrets", "password", "passwd", "passphrase", "passcode", "credential",
         "credentials", "cookie", "authorization")  # fmt: skip
_SHORT_ONES = ("pass", "pwd", "auth", "cred", "creds")  # with no letter before them: `bypass` is none
_ENDING = rf"(?:{'|'.join(_LONG)}|(?<![a-z])(?:{'|'.join(_SHORT_ONES)}))"
_VALUE = r"""([^\s'"]+|'[^']+'|"[^"]+")"""
# A workload prints what it likes, also a million letters without a space. So no pattern for its text begins with "any
# letters", or it would begin again at each of them: the words themselves are found, and an option from its first dash.
_GIVEN = re.compile(rf"({_ENDING}=){_VALUE}", re.IGNORECASE)
_ENDED = "|".join(f"(?<={end})" for end in (*_LONG, *(f"[^a-z]{word}" for word in _SHORT_ONES)))
_OPTION_GIVEN = re.compile(rf"(?<![\w.-])(-[\w.-]*+(?:{_ENDED})\s+(?=[^\s-])){_VALUE}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"(-{{0,2}}[\w.-]*{_ENDING}=)(.+)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(rf"--?[\w.-]*{_ENDING}", re.IGNORECASE)
# The last @ counts: a password may hold one too.
_IN_ADDRESS = re.compile(r"""(?<=://)([^/\s'"]+)(?=@)""")
_BEARER = re.compile(r"""(\bBearer\s+)([^\s'",;]+)""", re.IGNORECASE)
_HEADER = re.compile(
    r"""((?:\b(?:Proxy-)?Authorization|\bCookie|\bSet-Cookie|(?:[-_]|api|access|private)key"""
    r"""|token|secret|password|passwd|passphrase)["']?\s*:\s*"""
    r"""(?:(?:Bearer|Basic|Digest|Token)\s+)?)(["']?)([^\s'",;{}\[\]]+)""",
    re.IGNORECASE,
)
# Tokens that betray themselves, with nothing before them: GitHub, GitLab, Hugging Face, OpenAI, Slack, JSON web tokens.
_BY_FORM = re.compile(
    r"(?<![\w-])(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}"
    r"|sk-(?=[\w-]*[0-9])[\w-]{32,}|xox[abeoprs]-[\w-]{20,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})"
)
_ANY_SIGN = (
    *("key", "token", "secret", "pass", "pwd", "auth", "cred", "cookie", "bearer", "://"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "sk-", "xox", "eyj"),
)
_SHORT = re.compile(r"(-p)(\S+)", re.DOTALL)  # mysql -pVALUE
_NO_PASSWORD = re.compile(r"[a-z][a-z-]*|[0-9:.,/-]+")  # -print, -path, -p8080:80
_TAKES_PASSWORD = frozenset(
    {"mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlsh", "mariadb", "mariadb-dump", "sshpass"}
    | {"7z", "7za", "7zr", "rar", "unrar", "zip", "unzip"}
)
_USER_OPTIONS = frozenset({"-u", "--user", "--proxy-user", "-U"})
_USER = re.compile(r"([^:\s/]+:)(.+)", re.DOTALL)  # curl -u name:VALUE
# The second in older records; a longer one is the digest of a file, or of an image.
_MASK = re.compile(r"(?:hmac:[0-9a-f]{4}:[0-9a-f]{16}|sha256:[0-9a-f]{12})(?![0-9a-f])")
# A value that says how much, or whether: a number, a size, a time, a switch, a level.
_PLAIN = re.compile(
    r"[-+]?[0-9]+(\.[0-9]+)?\s?([kmgt]i?b?|[mun]?s|%)?|true|false|yes|no|on|off|none|auto|default|"
    r"trace|debug|info|notice|warn|warning|error|critical|fatal|quiet|verbose|",
    re.IGNORECASE,
)
_LONGEST_NUMBER = 12  # signs, with a unit, a sign or a point
_MOST_DIGITS = 6  # of a number alone: a longer one may be an account, or a code
# A variable of such a name may hold a secret that is a short number.
_NUMBER_HIDDEN = re.compile(r"(?<=[A-Z0-9_])PWD|(?:^|_)(?:PIN|OTP|CODE|ACCOUNT\w*)(?:_|$)", re.IGNORECASE)
LEAST_SIGNS = 6  # a shorter secret is not looked for in what is printed: its mask would stand all over the text
_SEEN: ContextVar[set[str] | None] = ContextVar("secrets", default=None)
_VALUES: dict[
    str, str
] = {}  # what was masked in this process, in memory alone: what a side had is set on the other one


def mask(secret: str) -> str:
    """What stands for a secret; a mask stands for itself, so that masking twice is masking once."""
    if _MASK.fullmatch(secret):
        return secret
    if (seen := _SEEN.get()) is not None:
        seen.add(secret)
    return digest(secret)


def digest(value: str) -> str:
    """What stands for a value that is not shown; the same on this machine, and of another key on every other one."""
    key = _key(state_dir())
    made = hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]
    stands = f"hmac:{hashlib.sha256(key).hexdigest()[:4]}:{made}"
    _VALUES[stands] = value
    return stands


def is_mask(text: str) -> bool:
    return _MASK.fullmatch(text) is not None


def holds_mask(text: str) -> bool:
    """Whether a mask is all of this text, or a part of it, as in `--token=MASK`."""
    return _MASK.search(text) is not None


def without_key(value: Any) -> Any:
    """Plain data with one word for every mask: the same on every machine, whatever its key is."""
    if isinstance(value, str):
        return _MASK.sub("SECRET", value)
    if isinstance(value, Mapping):
        return {name: without_key(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_key(each) for each in value]
    return value


def are_comparable(one: str, other: str) -> bool:
    """Whether two values differ if these texts do: not where both are digests with the keys of two machines."""
    keys = [text.split(":")[1] for text in (one, other) if is_mask(text) and text.startswith("hmac:")]
    return len({*keys}) < 2


def revealed(text: str) -> str | None:
    """What a mask stands for, if it was made in this process; None if not. Another text stands for itself."""
    return _VALUES.get(text) if is_mask(text) else text


def shown_env(env: Mapping[str, str]) -> dict[str, str]:
    """All variables: the values that say nothing of anybody, of the others what stands for them."""
    return {name: value if _is_shown(name, value) else digest(value) for name, value in env.items()}


def _is_shown(name: str, value: str) -> bool:
    if NAMES.search(name) or _NUMBER_HIDDEN.search(name) or masked_text(value) != value:
        return False
    longest = _MOST_DIGITS if value.isdigit() else _LONGEST_NUMBER
    short = _PLAIN.fullmatch(value) is not None and len(value) <= longest
    return short or launch.is_listed(name)  # type: ignore[no-untyped-call]


@cache
def _key(folder: Path) -> bytes:
    """The key of this machine; where none can be kept, one of this process."""
    path, key = folder / "digest.key", random.token_bytes(32)
    half = folder / f"digest.key.{os.getpid()}.{random.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            half.touch(0o600)
            half.write_bytes(key)
            _put(half, path, key)
    except OSError:
        pass
    with suppress(OSError):
        half.unlink(missing_ok=True)
    try:
        return path.read_bytes() or key
    except OSError:
        return key


def _put(half: Path, path: Path, key: bytes) -> None:
    """Make the key's file, whole and never over that of another process; not every file system has hard links."""
    try:
        os.link(half, path)
    except FileExistsError:
        return
    except OSError:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(key)


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables with the values of the secret ones masked."""
    masked = {}
    for name, value in env.items():
        if NAMES.search(name):
            masked[name] = mask(str(value))
        else:
            masked[name] = masked_text(value) if isinstance(value, str) else value
    return masked


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line without its secrets: `--api-key=VALUE`, `--token VALUE`, `HF_TOKEN=VALUE`, `https://me:it@...`."""
    masked, before = [], ""
    takes_password = bool(_TAKES_PASSWORD & {word.rpartition("/")[2] for word in words})
    for word in words:
        if (short := _SHORT.fullmatch(word)) and (takes_password or not _NO_PASSWORD.fullmatch(short[2])):
            masked.append(short[1] + mask(short[2]))
        elif before in _USER_OPTIONS and (named := _USER.fullmatch(word)):
            masked.append(named[1] + mask(named[2]))
        elif _OPTION.fullmatch(before) and not word.startswith("-"):
            masked.append(mask(word))
        elif found := _ASSIGNED.fullmatch(word):
            masked.append(found[1] + mask(found[2]))
        else:
            masked.append(masked_text(_masked_script(word)))
        before = word
    return masked


def _masked_script(word: str) -> str:
    """A word that is a command line of its own (`sh -c "curl -u me:it URL"`), without the secrets of its words."""
    try:
        parts = shlex.split(word)
    except ValueError:  # an apostrophe in a sentence
        parts = word.split()
    if parts in ([], [word]):
        return word
    shown = masked_words(parts)
    for part, masked in zip(parts, shown, strict=True):
        if part != masked:
            alone = rf"(?<![^\s'\"=(]){re.escape(part)}(?![^\s'\";&|)])"
            word, count = re.subn(alone, lambda _, to=masked: to, word)  # type: ignore[misc]
            if not count:  # it has quotes within
                return shlex.join(shown)
    return word


def masked_text(text: str) -> str:
    """A text, such as a script on a command line, without secrets that their form tells, or what stands before them."""
    lower = text.lower()
    if not any(sign in lower for sign in _ANY_SIGN):  # sixty times as quick as the patterns
        return text
    text = _BY_FORM.sub(lambda match: mask(match[0]), text)
    text = _IN_ADDRESS.sub(lambda match: mask(match[1]), text)
    text = _HEADER.sub(lambda match: f"{match[1]}{match[2]}{mask(match[3])}", text)
    text = _BEARER.sub(lambda match: match[1] + mask(match[2]), text)
    text = _OPTION_GIVEN.sub(lambda match: f"{match[1]}{mask(match[2])}", text)
    return _GIVEN.sub(lambda match: f"{match[1]}{mask(match[2])}", text)


@contextmanager
def collecting() -> Iterator[set[str]]:
    """The secrets that are masked meanwhile, as they are: for a `Scrubber`, and never to be kept."""
    seen: set[str] = set()
    before = _SEEN.set(seen)
    try:
        yield seen
    finally:
        _SEEN.reset(before)


class Scrubber:
    """Masks secrets in whatever is written down: those that it knows, and those that their surroundings betray."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        # `name:password` of an address is known by its password too.
        each = {part for secret in known for part in (secret, secret.partition(":")[2]) if len(part) >= LEAST_SIGNS}
        longest_first = sorted(each, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(lambda match: mask(match[0]), text)
        return masked_text(text)

    def data(self, value: Any) -> Any:
        """The same for every text in plain data; names of fields stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.data(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(each) for each in value]
        return value
