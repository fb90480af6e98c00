"""Keys are masked where text enters: a model's reply, what a command printed, an imported trace, a
person's words.

From there on the masked text is the text: it is what is acted on, journalled, stored and shown, so
that nothing behind a door masks again. Found are the values of this process's environment (and of
the workspace's `.env`) whose names look like keys, whatever gitleaks' rules find (`gitleaks.json`),
and a few shapes that they leave out.

One search for all words without which no rule can match goes first, and RE2 does the rest: the time
grows with the length of the text, whatever is in it.
"""

from __future__ import annotations

import base64
import builtins
import json
import keyword
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, unquote, urlsplit

from recreate.api import paths

SHORTEST = 8
"""Shorter values are left alone: masking `dev` or `true` everywhere would destroy texts and protect
nothing."""

_NAME = re.compile(
    r"(?:^|_)(?:API|ACCESS|SECRET|PRIVATE|AUTH)?"
    r"(?:KEYS?|TOKENS?|SECRETS?|PASS|PASSWD|PASSWORDS?|PASSPHRASE|PWD|CREDENTIALS?|PAT|DSN)(?:_|$)",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"^(?:OLD)?PWD$|(?:^|_)(?:PUBLIC|PUB)_KEY|_(?:FILE|PATH|DIR|NAME|HOME|SOCK|URL|URI|ENDPOINT|"
    r"HOST|COUNT)$",
    re.I,
)

_COMMON = {
    "abcdefgh",
    "admin",
    "change_me",
    "changeme",
    "credentials",
    "database",
    "development",
    "disabled",
    "example",
    "examples",
    "false",
    "guest",
    "localhost",
    "none",
    "null",
    "password",
    "passwords",
    "placeholder",
    "postgres",
    "postgresql",
    "production",
    "redacted",
    "required",
    "root",
    "secret",
    "true",
    "undefined",
    "user",
    "username",
    "x-oauth-basic",
    "your_password",
    "yourpassword",
}


# what is looked for


@dataclass(frozen=True, eq=False)
class _Rule:
    """words: at least one is in every text that the pattern matches, in lower case. group: which
    part is the secret, 0 for the first that is not empty. entropy: bits a character that the secret
    has at least. allowed: what is none, in the secret, in the match, or in its line. fits: whether
    what was found is meant as a secret.
    """

    words: tuple[str, ...]
    regex: str
    group: int = 0
    entropy: float = 0.0
    allowed: tuple[Mapping[str, Any], ...] = ()
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
            ):
                continue
            if any(pattern.search(secret) for pattern in _never()) or self._is_allowed(
                text, match, secret
            ):
                continue
            yield match.start(group), match.end(group)

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


def _no_placeholder(found: str) -> bool:
    """Whether a value says something: `<password>`, `$DB_PASS`, `xxxx`, `{}` and `your-password` do
    not."""
    plain = found.lower()
    return len(set(plain)) > 2 and not _PLACEHOLDER.search(plain) and plain not in _COMMON


_PLACEHOLDER = re.compile(
    r"[<>{}$%*\[\]()]|\.\.\.|^your|example|placeholder|redacted|change_?me|environ"
    r"|^(?:user|my|some|the|test|db)?[-_"
    r" ]?(?:pw|pass|passwd|password|passphrase|pwd|secret|token|key)$"
)


def _dotted(found: str) -> bool:
    return _no_placeholder(found) and bool(re.search(r"[\d.=+/]", found))


def _assigned(found: str) -> bool:
    """Whether the value is one that is no path either."""
    return _no_placeholder(found) and found[0] not in "./~"


def _is_basic(found: str) -> bool:
    """Whether it is user:password in base64."""
    try:
        plain = base64.b64decode(found + "=" * (-len(found) % 4), validate=True).decode()
    except ValueError:
        return False
    return ":" in plain and plain.isprintable()


_START = r"(?:^|[^A-Za-z0-9])"
_IS = r"[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?"
"""Between a header's name and what it says, also as a mapping in a program."""
_HEADERS = (
    "api-key",
    "apikey",
    "auth-token",
    "private-token",
    "subscription-key",
    "auth-key",
    "secret-key",
    "access-token",
)
_TO = r"(?:basic|bearer|token|digest|negotiate|apikey)[ \t]+"
_PEM = r"(-----BEGIN [A-Z ]*{0}-----[A-Za-z0-9+/=:,.\-\s]{{40,}}?-----END [A-Z ]*{0}-----)".format(
    "PRIVATE KEY(?: BLOCK)?"
)
_IN_QUERY = (
    r"(?i)[?&;](?:[a-z_\-]*(?:api_?key|token|secret|password|passwd|signature)|sig|pwd|"
    r"x-amz-credential)="
)
_QUERIES = (
    "key=",
    "token=",
    "secret=",
    "password=",
    "passwd=",
    "signature=",
    "sig=",
    "pwd=",
    "credential=",
)
_PASSWORD_IN_URL = (
    r"[A-Za-z][A-Za-z0-9+.\-]{1,30}://[^\s/:@?#\"'<>\[\]]"
    r"{0,128}:([^\s/:@?#\"'<>`\[\]]{3,256})@[A-Za-z0-9\[]"
)
_NAMES = ("key", "token", "secret", "pass", "pwd", "credential")
_VARIABLE = (
    r"(?:[A-Z][A-Z0-9]*_)*(?:KEYS?|TOKENS?|SECRETS?|PASS|PASSWD|PASSWORD|PASSPHRASE|PWD|"
    r"CREDENTIALS?|APIKEY)"
    r"(?:_[A-Z0-9]+)*="
)
# spaces beside a quote: where it stands in JSON, a backslash did
_VALUE = (
    r"(?: {0,7}\"([^\s\"][^\"\n]{6,200}[^\s\"])|"
    r" {0,7}'([^\s'][^'\n]{6,200}[^\s'])|([^\s\"'`]{8,200}))"
)
_WHOLE = _VALUE.replace(r"\"])|", r"\"]) {0,7}\"|").replace("'])|", "']) {0,7}'|")

_OURS = (
    _Rule(("sk-",), _START + r"(sk-[A-Za-z0-9_\-]{16,})", fits=_loose),
    _Rule(("sk-ant-",), _START + r"(sk-ant-[A-Za-z0-9_\-]{12,})"),
    _Rule(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _START + r"(gh[pousr]_[A-Za-z0-9]{20,})"),
    _Rule(("github_pat_",), _START + r"(github_pat_[A-Za-z0-9_]{20,})"),
    _Rule(("glpat-",), _START + r"(glpat-[A-Za-z0-9_\-]{16,})"),
    _Rule(("akia", "asia"), _START + r"((?:AKIA|ASIA)[A-Z0-9]{16})\b"),
    _Rule(("aiza",), _START + r"(AIza[A-Za-z0-9_\-]{30,})"),
    _Rule(("hf_",), _START + r"(hf_[A-Za-z0-9]{24,})"),
    _Rule(("xox",), _START + r"(xox[abeoprs]-[A-Za-z0-9\-]{12,})"),
    _Rule(("npm_",), _START + r"(npm_[A-Za-z0-9]{30,})"),
    _Rule(("pypi-",), _START + r"(pypi-[A-Za-z0-9_\-]{32,})", fits=_loose),
    _Rule(
        ("_live_", "_test_", "_prod_"),
        _START + r"([srpw]k_(?:live|test|prod)_[A-Za-z0-9]{10,})",
        fits=_random,
    ),
    _Rule(("whsec_",), _START + r"(whsec_[A-Za-z0-9+/=]{16,})"),
    _Rule(
        ("eyj",), _START + r"(eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{4,}(?:\.[A-Za-z0-9_\-]*)?)"
    ),
    _Rule(("private key",), _PEM),
    _Rule(("bearer",), r"(?i)\bbearer[ \t]+([A-Za-z0-9._~+/\-]{12,}=*)", fits=_dotted),
    _Rule(("basic",), r"(?i)\bbasic[ \t]+([A-Za-z0-9+/]{6,}={0,2})", fits=_is_basic),
    _Rule(
        ("authorization",),
        rf"(?i)\bauthorization{_IS}{_TO}([A-Za-z0-9._~+/=\-]{{8,}})",
        fits=_dotted,
    ),
    _Rule(
        _HEADERS,
        rf"(?i)(?:^|[^A-Za-z0-9:])(?:x-|ocp-apim-)?(?:{'|'.join(_HEADERS)})"
        rf"{_IS}([A-Za-z0-9._~+/=\-]{{8,}})",
        fits=_random,
    ),
    _Rule(("://",), _PASSWORD_IN_URL, fits=_no_placeholder),
    _Rule(_QUERIES, rf"{_IN_QUERY}([A-Za-z0-9._~+/%=\-]{{8,}})", fits=_random),
    _Rule(("key=",), r"(?i)[?&;]key=([A-Za-z0-9._~+%=\-]{8,})(?:[^A-Za-z0-9/]|$)", fits=_random),
    _Rule(
        ("aws", "secret"),
        rf"(?i)(?:aws|secret)[a-z_]{{0,20}}key{_IS}([A-Za-z0-9/+]{{40}})(?:[^A-Za-z0-9/+]|$)",
        fits=_random,
    ),
    _Rule(
        ("accountkey=", "sharedaccesskey="),
        r"(?i)\b(?:account|sharedaccess)key=([A-Za-z0-9+/]{40,}={0,2})",
    ),
    _Rule(
        ("_auth", "_password"),
        rf":_(?:authToken|auth|password){_IS}([^\s\"'$]{{8,}})",
        fits=_no_placeholder,
    ),
    _Rule(
        _NAMES,
        rf"(?:^|[^A-Za-z0-9_]){_VARIABLE}{_VALUE}",
        fits=lambda v: _assigned(v) and _random(v),
    ),
    # a line of its own, as in .env or what `env` prints, or a whole text in JSON
    _Rule(
        _NAMES,
        rf"(?m)(?:^|\")[ \t]*(?:export[ \t]+)?{_VARIABLE}{_WHOLE}[ \t\r]*(?:$|\")",
        fits=_assigned,
    ),
)


@cache
def _gitleaks() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(
        (Path(__file__).parent / "gitleaks.json").read_text("utf-8")
    )
    return found


@cache
def _never() -> list[Any]:
    """Return what is no secret, whatever rule found it: gitleaks' list for everywhere."""
    return [_compiled(regex) for regex in _gitleaks()["allowed"]]


@cache
def _rules() -> tuple[Any, list[list[_Rule]]]:
    """Return (a search for all words at once, the rules of each word)."""
    # with its rules it takes 10 ms, which a command that masks nothing need not wait for
    import re2

    by_word: dict[str, list[_Rule]] = {}
    taken = [
        _Rule(tuple(r["words"]), r["regex"], r["group"], r["entropy"], tuple(r["allowed"]))
        for r in _gitleaks()["rules"]
        if r["id"] != "private-key"  # ours asks for a key between the two lines
    ]
    for rule in (*taken, *_OURS):
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

    return re2.compile(regex)


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


def redact(text: str, spare: Collection[str] = ()) -> str:
    """Return `text` with keys replaced by `[redacted]`, or by `[redacted:NAME]` for an environment
    variable's value.

    Of plain text, also where it holds JSON, or JSON within JSON: what was JSON stays so. A value is
    also found as an address spells it, in base64 and in hex. spare: values that stay, since we
    asked for these very words. What is masked already stays as it is: redact(redact(x)) ==
    redact(x).
    """
    if spare or len(text) > _LONG:
        return _redact(text, _read_known(), spare)
    masked = _remembered(text, _read_known())
    # itself: callers tell by identity whether anything was masked
    return text if masked == text else masked


_LONG = 4096


@lru_cache(maxsize=2048)
def _remembered(text: str, known: _Known) -> str:
    """Most texts come through several doors: a step's as it is made, again with its attempt, and
    into memory."""
    return _redact(text, known, ())


def _redact(text: str, known: _Known, spare: Collection[str]) -> str:
    masked = _without_keys(text, known, spare)
    if masked == text and "\\u00" in text:  # JSON may spell any letter so, and is read later
        plain = _ESCAPED.sub(_letter, text)
        if plain != text and (masked := _without_keys(plain, known, spare)) == plain:
            return text
    return masked


def _letter(match: re.Match[str]) -> str:
    letter = chr(int(match[1], 16))
    return letter if letter not in '"\\' else match[0]


def _without_keys(text: str, known: _Known, spare: Collection[str]) -> str:
    if known.pattern is not None and any(map(text.__contains__, known.names)):

        def mask(match: re.Match[str]) -> str:
            name = None if match[0] in spare else known.names.get(match[0])
            return match[0] if name is None else f"[redacted:{name}]"

        text = known.pattern.sub(mask, text)
    words, rules = _rules()
    readable = _readable(text)
    found = words.Match(readable)
    for rule in dict.fromkeys(rule for n in sorted(found or ()) for rule in rules[n]):
        # again: one that is found may take what begins the next
        while spans := list(rule.spans(readable)):
            text, readable = _cut(text, spans), _cut(readable, spans)
    return text


_BACKSLASHED = re.compile(r"\\+[nrt\"']")
_HALF = re.compile("[\ud800-\udfff]")


def _readable(text: str) -> str:
    """Return the text as rules read it, character for character in the same places: line ends and
    quotes of JSON as what they stand for, and of half characters (a program's broken output), which
    are no Unicode, a stand-in.
    """
    if "\\" in text:
        text = _BACKSLASHED.sub(
            lambda m: m[0][:-1].replace("\\", " ") + _MEANS.get(m[0][-1], m[0][-1]), text
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _HALF.sub("\ufffd", text)
    return text


_MEANS = {"n": "\n", "r": "\r", "t": "\t"}


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], "[redacted]"]
        at = end
    return "".join([*parts, text[at:]])


def redacted(value: Any) -> Any:
    """JSON-like data with every text masked, names of fields apart; itself when there was nothing
    to mask.

    For what is nothing but text: an id, a split or another word of a fixed set is the caller's to
    keep out.
    """
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, int | float):
        return value  # most fields of a record: seen before what costs more to see
    if isinstance(value, Mapping):
        made: Any = {k: redacted(v) for k, v in value.items()}
        return value if all(made[k] is v for k, v in value.items()) else made
    if isinstance(value, list | tuple):
        made = [redacted(v) for v in value]
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
_looked: tuple[float, Any] = (0.0, None)


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
        _values, _seen = _Known(found, pattern), now
    return _values


@cache
def _env_file(folder: Path) -> Path:
    return paths.workspace(folder) / ".env"


def _dotenv_stamp() -> Any:
    """Return what tells one `.env` from another. It is looked for once a second: that takes longer
    than masking a line."""
    global _looked
    when = time.monotonic()
    if when - _looked[0] > 1 or _looked[0] == 0:
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
    if "://" in value:
        try:
            password = urlsplit(value).password or ""
        except ValueError:
            password = ""
        for spelling in {password, unquote(password)}:
            if len(spelling) >= SHORTEST or (len(spelling) >= 6 and _random(spelling)):
                yield from _tellable(spelling)
    elif _NAME.search(name) and not _NO_SECRET.search(name) and len(value) >= SHORTEST:
        yield from _tellable(value)


def _tellable(value: str) -> Iterator[str]:
    """Yield the value, unless masking it would destroy texts and protect nothing: a word that
    stands everywhere, a path."""
    plain = value.casefold()
    if (
        len(set(value)) > 2
        and plain not in _COMMON
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
