"""Keys are masked where text enters: a model's reply, what a command printed, an imported trace, a
person's words.

Found are the values of this process's environment (and of the workspace's `.env`) whose names look
like keys, whatever gitleaks' rules find (`gitleaks.json`), and shapes that they leave out
(`keys.toml`). What is acted on and journalled is masked of what is a key wherever it stands; what
is kept and shown, also of what merely stands where passwords stand (`sure = false`).

One search for all words without which no rule can match goes first, and RE2 does the rest: the time
grows with the length of the text, whatever is in it.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import json
import keyword
import math
import os
import re
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, unquote, urlsplit

from recreate.api import paths
from recreate.api.shapes import JsonMap

SHORTEST = 8
"""Shorter values are left alone: masking `dev` or `true` everywhere would destroy texts and protect
nothing."""

# what is looked for


@dataclass(frozen=True, eq=False)
class _Rule:
    """words: at least one is in every text that the pattern matches, in lower case. group: which
    part is the secret, 0 for the first that is not empty. entropy: bits a character that the secret
    has at least. allowed: what is none, in the secret, in the match, or in its line. unless: what
    stands there, or shortly before, when it is none. sure: whether it is one in a text that is
    acted on, too. fits: whether what was found is meant as a
    secret.
    """

    words: tuple[str, ...]
    regex: str
    group: int = 0
    entropy: float = 0.0
    allowed: tuple[JsonMap, ...] = ()
    unless: str = ""
    sure: bool = True
    fits: Callable[[str], bool] = field(default=lambda found: True)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where in the text the secrets stand."""
        for match in _compiled(self.regex).finditer(text):
            group = self.group or next(
                (n for n in range(1, 1 + len(match.groups())) if match.group(n)), 0
            )
            secret = match.group(group)
            if (
                _MASK_BEGINS in match.group()
                or not self.fits(secret)
                or _entropy(secret) < self.entropy
                or (self.unless and self._is_excepted(text, match))
            ):
                continue
            if any(pattern.search(secret) for pattern in _never()) or self._is_allowed(
                text, match, secret
            ):
                continue
            yield match.start(group), match.end(group)

    def _is_excepted(self, text: str, match: Any) -> bool:
        before = text[max(0, match.start() - 24) : match.start()]
        return bool(_compiled(self.unless).search(before + match.group()))

    def _is_allowed(self, text: str, match: Any, secret: str) -> bool:
        for each in self.allowed:
            looked = {"secret": secret, "match": match.group()}.get(each["in"]) or _line(
                text, match
            )
            if any(word in secret.lower() for word in each["words"]):
                return True
            if any(_compiled(regex).search(looked) for regex in each["regexes"]):
                return True
        return False


def _random(found: str) -> bool:
    """Letters and digits, and not the same few: no word of any language."""
    return bool(re.search(r"\d", found) and re.search(r"[A-Za-z]", found)) and _entropy(found) >= 2


def _loose(found: str) -> bool:
    """Whether it is a run of letters longer than words are, or several digits:
    `sk-toggleable__content-arrow` has neither."""
    return sum(map(str.isdigit, found)) >= 6 or max(map(len, re.split(r"[-_]", found))) >= 16


def _telling(found: str) -> bool:
    """Whether a value says something: `<password>`, `$DB_PASS`, `xxxx`, `{}` and `your-password` do
    not."""
    return (
        len(set(found.lower())) > 2
        and not _ours("placeholder").search(found)
        and found.lower() not in _common()
    )


def _dotted(found: str) -> bool:
    return _telling(found) and bool(re.search(r"[\d.=+/]", found))


def _assigned(found: str) -> bool:
    """Whether the value is one that is no path either."""
    return _telling(found) and found[0] not in "./~"


def _password(found: str) -> bool:
    """Whether it is a word with a digit or a sign in it, and neither a path nor a name."""
    return (
        _assigned(found)
        and len(set(found)) > 4
        and bool(re.search("[A-Za-z]", found) and re.search(r"[\d!@#$%^&*;?~]", found))
        and not re.search(r"\s|::|/.*/", found)
        and not _ours("telling").search(found)
    )


def _high(found: str) -> bool:
    """Whether a run of letters and digits is in it that is neither a word nor a number."""
    longest = max(re.findall("[A-Za-z0-9]+", found), key=len, default="")
    return (
        _telling(found)
        and len(longest) >= 8
        and len(found) >= 12
        and _entropy(found) >= 3
        and _random(longest)
        and (
            sum(map(str.isdigit, found)) >= 3
            or (len(longest) >= 12 and not _ours("telling").search(found))
        )
    )


def _is_basic(found: str) -> bool:
    """Whether it is user:password in base64."""
    try:
        plain = base64.b64decode(found + "=" * (-len(found) % 4), validate=True).decode()
    except ValueError:
        return False
    return ":" in plain and plain.isprintable()


_FITS: Mapping[str, Callable[[str], bool]] = {
    "": lambda found: True,
    "random": _random,
    "loose": _loose,
    "telling": _telling,
    "dotted": _dotted,
    "assigned": _assigned,
    "assigned_random": lambda found: _assigned(found) and _random(found),
    "password": _password,
    "high": _high,
    "basic": _is_basic,
}


@cache
def _table() -> JsonMap:
    found: JsonMap = tomllib.loads((Path(__file__).parent / "keys.toml").read_text("utf-8"))
    return found


@cache
def _ours(name: str) -> Any:
    """Return one of our own patterns, by its name in keys.toml."""
    return _compiled(_table()[name])


@cache
def _common() -> frozenset[str]:
    return frozenset(_table()["common"].split())


def _own_rules() -> Iterator[_Rule]:
    """Yield the rules of keys.toml."""
    table = _table()
    for line in table["prefixes"]:
        *prefixes, then = line.split(" ")
        either = "|".join(map(re.escape, prefixes))
        yield _Rule(
            tuple(prefix.lower() for prefix in prefixes),
            f"{table['parts']['START']}((?:{either}){then})",
            fits=_loose,
        )
    for rule in table["rules"]:
        regex = rule["regex"]
        for name, part in table["parts"].items():
            regex = regex.replace(f"<{name}>", part)
        yield _Rule(
            tuple(rule["words"]),
            regex,
            unless=rule.get("unless", ""),
            sure=rule.get("sure", True),
            fits=_FITS[rule.get("fits", "")],
        )


@cache
def _gitleaks() -> JsonMap:
    found: JsonMap = json.loads((Path(__file__).parent / "gitleaks.json").read_text("utf-8"))
    return found


@cache
def _never() -> list[Any]:
    """Return what is no secret, whatever rule found it: gitleaks' list for everywhere."""
    return [_compiled(regex) for regex in _gitleaks()["allowed"]]


@cache
def _rules(acted_on: bool) -> tuple[Any, list[list[_Rule]]]:
    """Return (a search for all words at once, the rules of each word)."""
    # with its rules it takes 10 ms, which a command that masks nothing need not wait for
    import re2

    by_word: dict[str, list[_Rule]] = {}
    taken = [
        _Rule(tuple(r["words"]), r["regex"], r["group"], r["entropy"], tuple(r["allowed"]))
        for r in _gitleaks()["rules"]
        if r["id"] != "private-key"  # ours asks for a key between the two lines
    ]
    for rule in (*taken, *(r for r in _own_rules() if r.sure or not acted_on)):
        for word in rule.words:
            by_word.setdefault(word, []).append(rule)
    options = re2.Options()
    options.case_sensitive = False
    words = re2.Set.SearchSet(options)
    for word in by_word:
        words.Add(re2.escape(word))
    words.Compile()
    return words, list(by_word.values())


@cache
def _compiled(regex: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = _ROOM
    options.log_errors = False
    return re2.compile(regex, options)


_ROOM = 64 << 20
"""Bytes that the states of one pattern may take: in 8 MiB, RE2's own, those of an address with a
password have no room in a text of many addresses, which it tells on stderr and is slow from then
on."""


def _entropy(text: str) -> float:
    """Bits a character, by Shannon."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _line(text: str, match: Any) -> str:
    end = text.find("\n", match.end())
    return text[text.rfind("\n", 0, match.start()) + 1 : end if end >= 0 else len(text)]


# masking

_MASK_BEGINS = "[redacted"
_MASK = r"\[redacted(?::[^\]\n]{1,200})?\]"
_ESCAPED = re.compile(r"\\+u00([2-7][0-9a-fA-F])")


def redact(text: str, spare: Collection[str] = (), *, acted_on: bool = False) -> str:
    """Return `text` with keys replaced by `[redacted]`, or by `[redacted:NAME]` for an environment
    variable's value.

    Of plain text, also where it holds JSON, or JSON within JSON: what was JSON stays so. A value is
    also found as an address spells it, in base64 and in hex. spare: values that stay, since we
    asked for these very words. acted_on: a password that merely stands where passwords do stays: a
    task may be about it, a program would break. What is masked already stays as it is:
    redact(redact(x)) == redact(x).
    """
    if spare or len(text) > _LONG:
        return _redact(text, _read_known(), spare, acted_on)
    masked = _remembered(text, _read_known(), acted_on)
    # itself: callers tell by identity whether anything was masked
    return text if masked == text else masked


_LONG = 4096


@lru_cache(maxsize=2048)
def _remembered(text: str, known: _Known, acted_on: bool) -> str:
    """Most texts come through several doors: a step's as it is made, again with its attempt, and
    into memory."""
    return _redact(text, known, (), acted_on)


def _redact(text: str, known: _Known, spare: Collection[str], acted_on: bool) -> str:
    masked = _without_keys(text, known, spare, acted_on)
    if masked == text and "\\u00" in text:  # JSON may spell any letter so, and is read later
        plain = _ESCAPED.sub(_letter, text)
        masked = _without_keys(plain, known, spare, acted_on)
        return text if masked == plain else masked
    return masked


def _letter(match: re.Match[str]) -> str:
    letter = chr(int(match[1], 16))
    return letter if letter not in '"\\' else match[0]


def _without_keys(text: str, known: _Known, spare: Collection[str], acted_on: bool) -> str:
    if known.pattern is not None and any(map(text.__contains__, known.names)):

        def mask(match: re.Match[str]) -> str:
            name = None if match[0] in spare else known.names.get(match[0])
            return match[0] if name is None else f"[redacted:{name}]"

        text = known.pattern.sub(mask, text)
    words, rules = _rules(acted_on)
    readable = _readable(text)
    found = words.Match(readable)
    for rule in dict.fromkeys(rule for n in sorted(found or ()) for rule in rules[n]):
        # again: one that is found may take what begins the next
        while spans := list(rule.spans(readable)):
            text = _cut(text, spans)
            readable = _cut(readable, spans)
    return text


_BACKSLASHED = re.compile(r"\\+[nrt\"']")
_HALF = re.compile("[\ud800-\udfff]")


def _readable(text: str) -> str:
    """Return the text as rules read it, character for character in the same places: line ends and
    quotes of JSON as what they stand for, and of half characters (a program's broken output), which
    are no Unicode, a stand-in.
    """
    if "\\" in text:
        text = _BACKSLASHED.sub(lambda m: _meaning(m[0]), text)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _HALF.sub("\ufffd", text)
    return text


_MEANS = {"n": "\n", "r": "\r", "t": "\t"}


@lru_cache(maxsize=256)
def _meaning(spelled: str) -> str:
    return " " * (len(spelled) - 1) + _MEANS.get(spelled[-1], spelled[-1])


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    parts = []
    at = 0
    for start, end in spans:
        parts += [text[at:start], "[redacted]"]
        at = end
    return "".join([*parts, text[at:]])


def redacted(value: Any, *, acted_on: bool = False) -> Any:
    """JSON-like data with every text masked, names of fields apart; itself when there was nothing
    to mask. acted_on: as `redact` has it.

    For what is nothing but text: an id, a split or another word of a fixed set is the caller's to
    keep out.
    """
    if isinstance(value, str):
        return redact(value, acted_on=acted_on)
    if value is None or isinstance(value, int | float):
        return value  # most fields of a record: seen before what costs more to see
    if isinstance(value, Mapping):
        made: Any = {k: redacted(v, acted_on=acted_on) for k, v in value.items()}
        return value if all(made[k] is v for k, v in value.items()) else made
    if isinstance(value, list | tuple):
        made = [redacted(v, acted_on=acted_on) for v in value]
        if all(a is b for a, b in zip(made, value, strict=True)):
            return value
        return tuple(made) if isinstance(value, tuple) else made
    return value


# this process's own


@dataclass(frozen=True, eq=False)
class _Known:
    """names: value -> the variable that has it. pattern: finds them, and masks, which stay."""

    names: Mapping[str, str]
    pattern: re.Pattern[str] | None


_seen: tuple[int, Any] | None = None
_values = _Known({}, None)
_looked: tuple[float, Any] = (-math.inf, None)


def _read_known() -> _Known:
    """Return the values that look like keys; read again when the environment changed, or the
    workspace's `.env`."""
    global _seen, _values
    # The stored bytes keep their hash, so this costs a microsecond; going through os.environ
    # decodes everything.
    raw = getattr(os.environ, "_data", None)
    now = (
        hash(tuple(raw.values())) if raw is not None else hash(tuple(os.environ.items())),
        _dotenv_stamp(),
    )
    if now != _seen:
        found: dict[str, str] = {}
        for name, value in (*os.environ.items(), *_dotenv()):
            for secret in _secrets(name, value):
                for spelling in _spellings(secret):
                    found.setdefault(spelling, name)
        longest = sorted(found, key=lambda each: (-len(each), each))
        pattern = re.compile("|".join([_MASK, *map(re.escape, longest)])) if found else None
        _values = _Known(found, pattern)
        _seen = now
    return _values


@cache
def _env_file(folder: Path) -> Path:
    return paths.workspace(folder) / ".env"


def _dotenv_stamp() -> Any:
    """Return what tells one `.env` from another. It is looked for once a second: that takes longer
    than masking a line."""
    global _looked
    when = time.monotonic()
    if when - _looked[0] > 1:
        try:
            file = _env_file(Path.cwd())
            info = file.stat()
            _looked = (when, (file, info.st_mtime_ns, info.st_size))
        except OSError:
            _looked = (when, None)
    return _looked[1]


def _dotenv() -> Iterator[tuple[str, str]]:
    """Yield the lines NAME=value of the workspace's `.env`."""
    try:
        text = _env_file(Path.cwd()).read_text("utf-8", "replace")
    except OSError:
        return
    for line in text[:1_000_000].splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            yield name.strip(), value[1:-1] if quoted else value.partition(" #")[0].strip()


def _secrets(name: str, value: str) -> Iterator[str]:
    """Yield what of a variable's value is to be masked."""
    parts = []
    named = _ours("variable").search(name) and not _ours("no_variable").search(name)
    if named or _ours("address").search(name):
        parts += [part for part in re.split(r"[:;=/]\s*", value) if _high(part)]
    if "://" in value:
        with contextlib.suppress(ValueError):
            address = urlsplit(value)
            password = address.password or address.username or ""
            parts += [password, unquote(password)]
        if _ours("address").search(name):
            parts.append(value)
    elif named:
        parts.append(value)
    words, rules = _rules(False)
    readable = _readable(value)
    for rule in {rule for n in words.Match(readable) or () for rule in rules[n]}:
        parts += [readable[start:end] for start, end in rule.spans(readable)]
    for part in parts:
        if len(part) >= SHORTEST or (len(part) >= 6 and _random(part)):
            yield from _tellable(part)


def _tellable(value: str) -> Iterator[str]:
    """Yield the value, unless masking it would destroy texts and protect nothing: a word that
    stands everywhere, a path."""
    plain = value.casefold()
    if (
        len(set(value)) > 2
        and plain not in _common()
        and plain not in _words()
        and not _is_path(value)
    ):
        yield value


def _is_path(value: str) -> bool:
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):  # a key of a thousand characters is no name of a file
        return False


@cache
def _words() -> frozenset[str]:
    """Return the words that records, replies and programs are written in."""
    # what every command reads before it knows whether it needs them
    from recreate.api.types import Record

    found = {*keyword.kwlist, *dir(builtins)}
    kinds: list[Any] = [Record]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        found.add(kind.__name__)
        for name, info in kind.model_fields.items():
            found |= {name, *(w for w in get_args(info.annotation) if isinstance(w, str))}
    return frozenset(word.casefold() for word in found)


def _spellings(value: str) -> set[str]:
    """Return the value itself, as it stands in JSON and in JSON within JSON, in an address, in hex,
    and in base64 of it or of a text that it is in."""
    found = {value}
    for _ in range(2):
        found |= {
            json.dumps(text, ensure_ascii=ascii)[1:-1] for text in found for ascii in (True, False)
        }
    data = value.encode("utf-8", "surrogatepass")
    found |= {data.hex(), data.hex().upper()}
    for before in range(3):
        for alphabet in (b"+/", b"-_"):
            text = base64.b64encode(bytes(before) + data, alphabet).decode()
            # without the letters that say something of what stands before or behind it as well
            found.add(text[-(-before * 4 // 3) : (before + len(data)) * 4 // 3])
    return found | {quote(value, safe="")}
