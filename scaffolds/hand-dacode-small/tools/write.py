#!/usr/bin/env python3
"""Takes a reply with a program in a ```python block on standard input, mends common slips of it, runs it, and writes
the lines `@name[value]` that it prints into answer.txt; says what went wrong where there are none."""

import ast
import csv
import difflib
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

SECONDS = 25
MENDS = 3
IMPORTS = {
    "pd": "import pandas as pd", "np": "import numpy as np", "plt": "import matplotlib.pyplot as plt",
    "sns": "import seaborn as sns", "sm": "import statsmodels.api as sm", "stats": "from scipy import stats",
    **dict.fromkeys(("pandas", "numpy", "scipy", "math", "datetime", "re", "json", "csv"), ""),
    **{name: f"from scipy.stats import {name}" for name in
       ("pearsonr", "spearmanr", "shapiro", "kstest", "normaltest", "zscore", "skew", "kurtosis", "ttest_ind",
        "f_oneway", "chi2_contingency", "anderson", "mannwhitneyu", "norm", "linregress", "iqr")},
    **{name: f"from sklearn.linear_model import {name}" for name in ("LinearRegression", "LogisticRegression")},
    **{name: f"from sklearn.preprocessing import {name}" for name in
       ("MinMaxScaler", "StandardScaler", "LabelEncoder", "OneHotEncoder")},
    **{name: f"from sklearn.metrics import {name}" for name in
       ("mean_squared_error", "mean_absolute_error", "r2_score", "accuracy_score")},
    **{name: f"from sklearn.ensemble import {name}" for name in ("RandomForestClassifier", "RandomForestRegressor")},
    "train_test_split": "from sklearn.model_selection import train_test_split",
    "SimpleImputer": "from sklearn.impute import SimpleImputer",
}  # fmt: skip
NUMBERS = r"""
for _c in df.select_dtypes("object"):
    _v = df[_c].astype(str)
    _n = pd.to_numeric(_v.str.replace(r"[,$%]", "", regex=True), errors="coerce")
    _t = pd.to_timedelta(_v.where(_v.str.fullmatch(r"\d+:\d\d:\d\d")), errors="coerce").dt.total_seconds()
    for _v in (_n, _t):
        if _v.notna().sum() > 0.8 * df[_c].notna().sum():
            df[_c] = _v
            break
"""
"""Put after the table is read: numbers that are given as text become numbers, and times of hours, minutes and seconds
become seconds."""


def plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def respelt(code: str, other: dict[str, str]) -> str:
    """The program with the string literals that are keys of `other` in its place."""
    lines = code.splitlines(keepends=True)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        return code
    for token in reversed(tokens):
        if token.type != tokenize.STRING or token.start[0] != token.end[0]:
            continue
        new = token.string
        if new[0] in "\"'":
            value = ast.literal_eval(new)
            new = repr(other[value]) if value in other else new
        elif new[0] in "fF":
            for quote in "\"'":
                for value, name in other.items():
                    new = new.replace(f"{quote}{value}{quote}", f"{quote}{name}{quote}")
        line = lines[token.start[0] - 1]
        lines[token.start[0] - 1] = line[: token.start[1]] + new + line[token.end[1] :]
    return "".join(lines)


def literals(code: str) -> list[str]:
    try:
        return [n.value for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    except SyntaxError:
        return []


def tidied(code: str, table: Path, columns: list[str]) -> str:
    """The program with the table's own name and its columns' own spelling, and with the imports that it lacks."""
    code = re.sub(r"^(pd|pandas)\.read_csv\(", r"df = \1.read_csv(", code, flags=re.MULTILINE)
    known = {plain(name): name for name in reversed(columns)}
    other = {}
    for value in literals(code):
        if value.endswith(".csv") and not Path(value).is_file():
            other[value] = table.name
        elif value not in columns and len(plain(value)) > 1 and plain(value) in known:
            other[value] = known[plain(value)]
    code = respelt(code, other)
    if "read_csv" not in code and re.search(r"\bdf\b", code) and not made(code, "df"):
        code = f"df = pd.read_csv({table.name!r})\n{code}"
    used = set(re.findall(r"\b([A-Za-z_]\w*)(?=[.(])", code))
    lines = [IMPORTS[name] or f"import {name}" for name in IMPORTS if name in used and not made(code, name)]
    return "\n".join([*lines, code])


def made(code: str, name: str) -> bool:
    return bool(re.search(rf"\bimport\b[^\n]*\b{name}\b|^\s*{name}\s*=|\bdef {name}\b", code, re.MULTILINE))


def run(code: str) -> tuple[bool, str]:
    """(it ended well, what it printed or what Python says of it)"""
    Path("program.py").write_text(code + "\n", encoding="utf-8")
    try:
        ran = subprocess.run(
            ["python3", "-W", "ignore", "program.py"],
            capture_output=True, text=True, errors="replace", timeout=SECONDS, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"It did not end within {SECONDS} seconds."
    if not ran.returncode:
        return True, ran.stdout
    said = ran.stderr.strip().splitlines()
    where = [n for n, line in enumerate(said) if 'program.py", line' in line]
    shown = [said[where[-1] + 1] if where and where[-1] + 1 < len(said) else "", *said[-1:]]
    return False, "\n".join(line.strip()[:300] for line in shown)


def mended(code: str, said: str, columns: list[str]) -> str:
    """The program with the cause of what Python says taken away, where it is a common one; else as it is."""
    if lost := re.search(r"KeyError: [\"'](.+?)[\"']$", said):
        near = difflib.get_close_matches(lost[1], columns, 1, 0.6)
        return respelt(code, {lost[1]: near[0]}) if near else code
    read = re.search(r"^df = (?:pd|pandas)\.read_csv\(.*\)[ \t]*$", code, re.MULTILINE)
    if read and re.search(r"TypeError|ValueError: (could not convert|unable to parse)|DataError", said):
        return code[: read.end()] + NUMBERS + code[read.end() :] if NUMBERS not in code else code
    return code


def rounded(line: str) -> str:
    """The line with a number that was not rounded at all rounded to two places, as most questions ask."""

    def shorter(found: re.Match[str]) -> str:
        value = float(found[0])
        return str(round(value, 2 if abs(value) >= 0.005 else 4))

    return re.sub(r"-?\d+\.\d{6,}(?:e-?\d+)?", shorter, line)


def main() -> int:
    blocks = re.findall(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", sys.stdin.read(), re.DOTALL | re.IGNORECASE)
    if not blocks or not max(blocks, key=len).strip():
        print("there is no ```python block in the reply")
        return 2
    (table,) = Path.cwd().glob("*.csv")
    with table.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        columns = next(csv.reader(file), [])
    code = tidied(max(blocks, key=len), table, columns)
    well, said = run(code)
    for _ in range(MENDS):
        again = code if well else mended(code, said, columns)
        if again == code:
            break
        code = again
        well, said = run(code)
    lines = [rounded(line) for line in said.splitlines() if re.search(r"@\w+\[", line)] if well else []
    if not well:
        print(f"The program failed:\n{said}")
        if "KeyError" in said:
            print("The columns are:", ", ".join(map(repr, columns[:40])))
    elif not lines:
        print(f"The program printed no line `@name[value]`. It printed:\n{said.strip()[:400] or 'nothing'}")
    elif any("[nan]" in line for line in lines):
        print("A value is nan. Drop the rows with missing values in the columns that you use before you compute it.")
    else:
        Path("answer.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print("answer.txt is written")
    return 0


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit(0)
    sys.exit(main())
