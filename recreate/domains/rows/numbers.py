"""Numbers as people and models write them: 1,234.5 and 1.234,5, 1 000, 1'000, 12,34,567, 3/4, 1½,
\\frac12, 12%, 1e3, 1.5×10³, 2 million."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction

_TAIL = 10_000
"""Characters at the end of an answer in which its last number is looked for."""
_MOST_DIGITS = 400
_SCALES = {
    "k": 10**3,
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\ufe63\uff0d", "-"),
        **dict.fromkeys("\u202f\u2009\u2007", "\u00a0"),
        "\u2044": "/",
        "\u2019": "'",
        "\uff05": "%",
    }
)
_SPELLINGS = (
    (re.compile(r"\\%"), "%"),
    (re.compile(r"(?<=\d)(?:\{,\}|\\,|\u00a0)(?=\d{3}(?!\d))"), ""),  # 1{,}000, and a narrow blank
    (re.compile(r"(?<=-)\u00a0(?=\d)"), ""),
    (re.compile("\u00a0"), " "),
    (re.compile(r"\\[cdt]?frac\s*(?:\{([-+]?\d{1,50})\}|(\d))\s*(?:\{(\d{1,50})\}|(\d))"), r"\f"),
    (
        re.compile(
            r"(?<=\d)\s*(?:[×xX*·⋅]|\\times|\\cdot)\s*10\s*(?:\^|\*\*)\s*\{?\s*([-+]?\d{1,3})"
            r"(?!\d)\s*\}?"
        ),
        r"e\1",
    ),
    (re.compile(r"(?<![\w.])10\s?(?:\^|\*\*)\s?\{?([-+]?\d{1,3})(?!\d)\}?"), r"1e\1"),
    (re.compile(r"(?<=[A-Za-z])(?:\^|\*\*)\{?[-+]?\d+\}?"), ""),  # m^2 is a unit
    (re.compile(r"\b0[xX][0-9a-fA-F]+|(?<![\w.])\d{1,10}(?::\d{1,10})+"), " "),  # 7:30 is none
)
_END = r"(?!\d|[.,]\d)"
_COMMA = (  # numbers whose comma is a decimal one
    rf"\d{{1,3}}(?:\.\d{{3}})+,\d+{_END}|\d{{1,3}}(?:\.\d{{3}}){{2,}}{_END}"
    rf"|\d{{1,3}}(?:[ '_]\d{{3}})+,\d+{_END}"
    rf"|(?<!\d,)(?P<doubtful>(?:0|\d{{4,}}),\d+|\d{{1,3}},(?!\d{{3}}(?!\d))\d+){_END}"
)
_POINT = (
    r"(?!0)\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d|,\d)"
    r"|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?(?!\d|,\d)"
    r"|\d{1,3}(?:[ '_]\d{3})+(?:\.\d+)?(?!\d| \d)|\d+(?:\.\d+)?|\.\d+"
)
_NUMBER = re.compile(
    r"(?<![\w./])(?P<sign>[-+]?)(?:[$€£¥₹]\s?)?(?:(?P<whole>\d{1,50})\s)?(?P<top>\d{1,50})"
    r"\s?/\s?(?P<below>\d{1,50})(?![\d/]|\.\d)(?P<per>\s?%)?"
    rf"|(?<![\w.])(?P<minus>[-+]?)(?:[$€£¥₹]\s?)?(?:(?P<comma>{_COMMA})|(?P<point>{_POINT}))"
    r"(?:[eE](?P<power>[-+]?\d{1,3})(?!\w))?"
    r"(?P<percent>\s?%)?(?:(?P<k>k)(?!\w)|\s(?P<scale>(?i:[mbt]r?illion|thousand|hundred))\b)?"
)
_MARKED = re.compile(r".*(?:####|\\boxed\{)(?P<last>[^}\n]*)", re.DOTALL)


def readings(text: str) -> list[tuple[Fraction, bool]]:
    """Return the last number of a text: (value, whether it is read as a part). `12%` may mean 0.12
    and, where only one side has the sign, 12; [] for no number. One of over 400 digits is none."""
    found = None
    for match in _numbers(text):
        found = match
    return _values(found) if found else []


def is_number(text: str) -> bool:
    """Return whether a text is one number and nothing else but its currency."""
    written = _spell(text)
    found = list(_NUMBER.finditer(written))
    if len(found) != 1 or not _values(found[0]):
        return False
    rest = written[: found[0].start()] + written[found[0].end() :]
    return not rest.strip(" \t\r\n.$€£¥₹")


def marked_part(text: str) -> str:
    """Return what stands behind `####` or in `\\boxed{}`, by which solutions say their answer; the
    text itself where there is neither."""
    marked = _MARKED.match(text)
    return marked["last"] if marked else text


def explain_doubt(text: str) -> str:
    """Return why a cell is not one number that can be read in one way, '' for one that is."""
    found = list(_numbers(text))
    if not found or not (values := _values(found[-1])):
        return "has no number"
    shown = " ".join(text.split())[:60]
    read = format_number(values[-1][0]) + "%" * (len(values) > 1)
    meant = f"{shown} is read as {read}"
    if len(found) > 1:
        return f"{meant}, and has {len(found)} numbers: one must be there"
    match, written = found[0], _spell(text).strip()
    if match["doubtful"]:
        return f"{meant}, and might be two numbers: write {read} where that is meant"
    if re.fullmatch(r"\(.*\)", written) and not match["minus"]:
        return f"{meant}, and might be -{read}: write the one that is meant"
    if re.match(r"[KMBGT](?!\w)", match.string[match.end() :]):
        return f"{meant}: write the number out, without the letter"
    return ""


def format_number(value: Fraction) -> str:
    """Return a number in digits."""
    try:
        return f"{float(value):.12g}"
    except OverflowError:
        return "a very large one"


def _numbers(text: str) -> Iterator[re.Match[str]]:
    return _NUMBER.finditer(_spell(text[-_TAIL:]))


def _spell(text: str) -> str:
    """Return the text with what stands for a number written in one way."""
    text = "".join(map(_fraction, text)) if not text.isascii() else text
    text = re.sub(r"10[⁺⁻]?[⁰¹²³⁴-⁹]+", _power, text.translate(_PLAIN))
    for pattern, put in _SPELLINGS:
        text = pattern.sub(_divide if put == r"\f" else put, text)
    return re.sub(r"(\d)\0", r"\1 ", text).replace("\0", "")


def _fraction(character: str) -> str:
    """Return ½ as 1/2, behind a mark that parts it from a whole number."""
    spelled = unicodedata.decomposition(character)
    return "\0" + unicodedata.normalize("NFKC", character) if "<fraction>" in spelled else character


def _power(match: re.Match[str]) -> str:
    return "10^" + match[0][2:].translate(_SUPERSCRIPTS)


def _divide(match: re.Match[str]) -> str:
    return f"\0{match[1] or match[2]}/{match[3] or match[4]} "


def _values(match: re.Match[str]) -> list[tuple[Fraction, bool]]:
    """Return what a match may mean."""
    if match["top"]:
        if not int(match["below"]):
            return []
        value = Fraction(int(match["top"]), int(match["below"])) + int(match["whole"] or 0)
        minus, percent = match["sign"], match["per"]
    else:
        written = match["comma"] or match["point"]
        drop = r"[.\s'_]" if match["comma"] else r"[,\s'_]"
        digits = re.sub(drop, "", written).replace(",", ".")
        if len(digits) > _MOST_DIGITS:
            return []
        scale = _SCALES.get((match["k"] or match["scale"] or "").lower(), 1)
        value = Fraction("0" + digits) * Fraction(10) ** int(match["power"] or 0) * scale
        minus, percent = match["minus"], match["percent"]
    value = -value if minus == "-" else value
    return [(value / 100, True), (value, False)] if percent else [(value, True)]
