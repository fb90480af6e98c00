"""The pieces of swe that work on text: diffs, mutants, tests cut out of files."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.paths import shipped
from recreate.plugins.swe import patch, sources
from recreate.plugins.swe.facts import Part
from recreate.plugins.swe.hard_mutation import WIDE, mutated
from recreate.plugins.swe.mutation import OPERATORS, Source, mutate_source, mutations

# --- diffs
# ------------------------------------------------------------------------------------------------

LINE = st.sampled_from(
    [
        "a",
        "b",
        "",
        " ",
        "-x",
        "+y",
        "@@ -1 +1 @@",
        "--- a/f",
        "+++ b/f",
        "\\ No",
        "c\r",
        "\u2028",
        "ü",
    ]
)
TEXT = st.builds(
    lambda lines, end: "\n".join(lines) + end,
    st.lists(LINE, max_size=12),
    st.sampled_from(["", "\n"]),
)
TREE = st.dictionaries(
    st.sampled_from(["f", "a b/c.py", 'q"\\t.py', "ü/x", "z\t.py"]), TEXT, max_size=4
)


@given(TREE, TREE)
def test_a_diff_that_is_made_can_be_applied(before: dict[str, str], after: dict[str, str]) -> None:
    diff = patch.make(before, after)
    result: dict[str, str | None] = {**before, **patch.apply(patch.read(diff), before)}
    assert {p: t for p, t in result.items() if t is not None} == after


def test_a_hunk_that_moved_is_found_and_one_that_is_ambiguous_is_not() -> None:
    diff = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n"
    assert patch.apply(patch.read(diff), {"f": "1\n2\nx\ny\n"}) == {"f": "1\n2\nx\nz\n"}
    with pytest.raises(patch.BadPatch, match="more than once"):
        patch.apply(patch.read(diff), {"f": "1\nx\ny\nx\ny\n"})
    diff = "--- a/f\n+++ b/f\n@@ -3 +3 @@\n-x\n+y\n"
    assert patch.apply(patch.read(diff), {"f": "x\n1\n2\n"}) == {"f": "y\n1\n2\n"}


def test_of_equal_lines_the_one_at_its_place_is_changed_counted_as_the_hunks_before_left_them() -> (
    None
):
    diff = "--- a/f\n+++ b/f\n@@ -1 +1,3 @@\n-a\n+b\n+x\n+x\n@@ -4 +6 @@\n-x\n+y\n"
    assert patch.apply(patch.read(diff), {"f": "a\n" + 5 * "x\n"}) == {
        "f": "b\nx\nx\nx\nx\ny\nx\nx\n"
    }


def test_a_rename_is_followed() -> None:
    diff = (
        "diff --git a/old.py b/new.py\nsimilarity index 90%\nrename from old.py\nrename to new.py\n"
    )
    diff += "--- a/old.py\n+++ b/new.py\n@@ -1 +1 @@\n-x\n+y\n"
    assert patch.apply(patch.read(diff), {"old.py": "x\n"}) == {"old.py": None, "new.py": "y\n"}


def test_prose_around_a_diff_is_skipped() -> None:
    diff = "Here it is:\n```diff\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n```\nDone.\n"
    assert patch.apply(patch.read(diff), {"f": "x\n"}) == {"f": "y\n"}


HEAD = "--- a/f\n+++ b/f\n"


@pytest.mark.parametrize(
    ("diff", "says"),
    [
        ("@@ -1 +1 @@\n-x\n+y\n", "line 1: a hunk before any file name"),
        (
            HEAD + "@@ -1,2 +1 @@\n-x\n+y\n",
            "the hunk '@@ -1,2 +1 @@' has 1 old and 1 new lines: it is cut",
        ),
        (HEAD + "@@ -1 +1,2 @@\n-x\n+y\n", "1 old and 1 new lines: it is cut"),
        (HEAD + "@@ -1,2 +1,2 @@\n x\n-y\n", "2 old and 1 new lines: it is cut"),
        (
            HEAD + "@@ -1 +1 @@\n-z\n+y\n",
            "hunk 1 of f does not apply: what it replaces is not in the file",
        ),
        (HEAD + "@@ -1 +1 @@\n-x\n+y\n@@ -2 +2 @@\n-q\n+r\n", "hunk 2 of f does not apply"),
        (HEAD + "@@ -9,0 +9 @@\n+y\n", "hunk 1 of f does not apply"),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n", "hunk 1 of f does not apply"),
        ("--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n", "g is not among the sources"),
        ("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+y\n", "f exists already"),
        ('--- "a/g\\"\n+++ "b/g\\"\n@@ -1 +1 @@\n-x\n+y\n', "g\\ is not among the sources"),
        ("diff --git a/f b/f\nGIT binary patch\n", "binary files are not taken"),
        ("diff --git a/f b/f\nBinary files a/f and b/f differ\n", "binary files are not taken"),
        ("diff --git a/g b/g\nnew file mode 120000\n", "links are not taken"),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 120000\n", "links are not taken"),
        ("--- a/f\n+++ b//etc/f\n@@ -1 +1 @@\n-x\n+y\n", "is not a path inside the sources"),
        ("--- a/f\n+++ b/../f\n@@ -1 +1 @@\n-x\n+y\n", "is not a path inside the sources"),
        ("--- a/f\n+++ b/.git/f\n@@ -1 +1 @@\n-x\n+y\n", "is not a path inside the sources"),
        ("--- a/f\n+++ b/a//f\n@@ -1 +1 @@\n-x\n+y\n", "is not how that path is written"),
        (
            f"--- a/f\n+++ b/{'n' * 256}\n@@ -1 +1 @@\n-x\n+y\n",
            f"'{'n' * 200}' is too long for a path",
        ),
        (f"--- a/f\n+++ b/{'nnnn/' * 100}n\n@@ -1 +1 @@\n-x\n+y\n", "is too long for a path"),
        (HEAD + "@@ -1 +1 @@\n-x\n+\ud800\n", "halves of characters"),
        ("x" * 16_000_001, "more than 16000000"),
    ],
)
def test_what_is_no_diff_of_the_sources_says_why(diff: str, says: str) -> None:
    with pytest.raises(patch.BadPatch) as e:
        patch.apply(patch.read(diff), {"f": "x\n"})
    assert says in str(e.value)


@pytest.mark.parametrize(
    ("diff", "tree"),
    [
        ("--- f\n+++ f\n@@ -1 +1 @@\n-x\n+y\n", {"f": "y\n"}),
        ("--- a/f\t2026-11-21\n+++ b/f\t2026-11-22\n@@ -1 +1 @@\n-x\n+y\n", {"f": "y\n"}),
        ('--- "a/f"\n+++ "b/f"\n@@ -1 +1 @@ def x():\n-x\n+y\n', {"f": "y\n"}),
        ('--- "a/\\146"\n+++ "b/\\146"\n@@ -1 +1 @@\n-x\n+y\n', {"f": "y\n"}),
        (HEAD + "@@ -1 +1 @@\n-x\n+y\n\\ No newline at end of file\n", {"f": "y"}),
        (HEAD + "@@ -1 +1,2 @@\n x\n+y\n\\ No newline at end of file\n", {"f": "x\ny"}),
        (HEAD + "@@ -1 +1,3 @@\n x\n+\n+y\n", {"f": "x\n\ny\n"}),
        (HEAD + "@@ -0,0 +1 @@\n+y\n", {"f": "y\nx\n"}),
        (HEAD + "@@ -1,0 +2 @@\n+y\n", {"f": "x\ny\n"}),
        (HEAD + "@@ -1,0 +2 @@\n+y\n" + HEAD + "@@ -1 +1 @@\n-x\n+z\n", {"f": "z\ny\n"}),
        (HEAD + "@@ -0,0 +1,2 @@\n+a\n+b\n@@ -1 +3 @@\n-x\n+y\n", {"f": "a\nb\ny\n"}),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", {"f": None}),
        ("--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+y\n", {"g": "y\n"}),
        ("diff --git a/g b/g\nnew file mode 100644\n", {"g": ""}),
        ("diff --git a/f b/f\ndeleted file mode 100644\n", {"f": None}),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", {}),
        ("diff --git a/f b/g\nrename from f\nrename to g\n", {"f": None, "g": "x\n"}),
        (f"--- /dev/null\n+++ b/{'n' * 255}\n@@ -0,0 +1 @@\n+y\n", {"n" * 255: "y\n"}),
        (
            f"diff --git a/{'nnnn/' * 99}nnnnn b/{'nnnn/' * 99}nnnnn\nnew file mode 100644\n",
            {"nnnn/" * 99 + "nnnnn": ""},
        ),
        ("no diff at all\n--- a\n", {}),
        ("no diff at all\n--- a", {}),
        (HEAD + "@@ -1 +1 @@\n-x\n+y", {"f": "y\n"}),
        (HEAD + "@@ -0,0 +0,0 @@", {"f": "x\n"}),
        (
            "diff --git a/g b/g\nnew file mode 100644\n" + HEAD + "@@ -1 +1 @@\n-x\n+y\n",
            {"g": "", "f": "y\n"},
        ),
        (HEAD + "@@ -1 +1,2 @@\n x\n+x\n" + HEAD + "@@ -1 +1 @@\n-x\n+y\n", {"f": "y\nx\n"}),
        ("diff --git a/f b/g h\nrename from f\nrename to g h i\n", {"f": None, "g h i": "x\n"}),
        (
            (
                "diff --git a/g b/g\nnew file mode 100644\ndiff --git a/f b/h\nrename from"
                " f\nrename to h\n--- a/f\n+++ b/h\n@@ -1 +1 @@\n-x\n+y\n"
            ),
            {"g": "", "f": None, "h": "y\n"},
        ),
        ("diff --git a/f b/g\ndeleted file mode 100644\n", {}),
        ("diff --git c/f i/f\ndeleted file mode 100644\n", {}),
    ],
)
def test_diffs_in_every_form_that_git_and_diff_write_are_read(
    diff: str, tree: dict[str, str | None]
) -> None:
    assert patch.apply(patch.read(diff), {"f": "x\n"}) == tree


@given(st.text('a7.\\"\t\n\a\b\f\v\r\0 ü€', max_size=9).map("n{}n".format))
def test_a_path_of_any_bytes_is_read_as_git_quotes_it(path: str) -> None:
    names = {
        "\a": "a",
        "\b": "b",
        "\t": "t",
        "\n": "n",
        "\v": "v",
        "\f": "f",
        "\r": "r",
        '"': '"',
        "\\": "\\",
    }
    quoted = "".join(
        (
            f"\\{names[c]}"
            if c in names
            else c
            if " " <= c <= "~"
            else "".join(f"\\{b:03o}" for b in c.encode())
        )
        for c in path
    )
    for diff in (
        f'diff --git "a/{quoted}" "b/{quoted}"\nnew file mode 100644\n',
        f'--- /dev/null\n+++ "b/{quoted}"\n@@ -0,0 +1 @@\n+y\n',
    ):
        if "\0" in path:
            with pytest.raises(patch.BadPatch, match="not a path inside the sources"):
                patch.read(diff)
        else:
            assert patch.read(diff)[0].paths == {path}


def test_a_line_without_an_end_is_only_found_at_the_end_of_a_file() -> None:
    diff = HEAD + "@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n"
    assert patch.apply(patch.read(diff), {"f": "a\nx"}) == {"f": "a\ny\n"}
    for text in ("a\nxx\n", "x\na\n", ""):
        with pytest.raises(patch.BadPatch, match="not in the file"):
            patch.apply(patch.read(diff), {"f": text})


def test_a_diff_shows_three_lines_around_what_changed() -> None:
    before, after = (
        {"f": "".join(f"{n}\n" for n in (*range(2500), side, *range(2501, 5000)))} for side in "ab"
    )
    diff = patch.make(before, after)
    assert diff.splitlines()[3] == "@@ -2498,7 +2498,7 @@"
    assert len(diff.splitlines()) == 4 + 8
    assert patch.apply(patch.read(diff), before) == after


def test_a_text_of_sixteen_million_characters_is_still_read() -> None:
    assert patch.read("x" * 16_000_000) == []


def test_two_large_versions_of_a_file_are_one_hunk_of_everything() -> None:
    before, after = ({"f": "".join(f"{n}{side}\n" for n in range(5001))} for side in "ab")
    diff = patch.make(before, after)
    assert diff.splitlines()[1:4] == ["--- a/f", "+++ b/f", "@@ -1,5001 +1,5001 @@"]
    assert patch.apply(patch.read(diff), before) == after


# --- mutants
# ----------------------------------------------------------------------------------------------

CODE = '''
import re


class Box:
    """Ünïcode before the code."""

    def find(self, key, default=0, strict=False):
        """Docs: 1 < 2 and not 3."""
        if not key:
            return default
        try:
            found = [x for x in self.items if (x.name) == key and x.size >= 2]
        except (KeyError, ValueError):
            raise KeyError("1 < 2")
        total = 0
        for item in found[1:-1]:
            if item is None:
                continue
            total += item.size * 2 - 1
        self.last = total
        return sorted(found, key=len, reverse=strict) or re.sub("ab", "c", key).strip()
'''


def test_every_operator_acts_on_the_text_it_names_and_nowhere_else() -> None:
    source = Source(CODE)
    place = source.function("Box.find")
    assert place is not None
    found = mutations(source, place)
    acted = {}
    for mutation in found:
        text = mutate_source(source, mutation)
        if text is None:
            continue
        assert mutated({"box.py": CODE}, [_part(mutation.operator, mutation.occurrence)]) == {
            "box.py": text
        }
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(CODE))
        changed = [
            n
            for n, (a, b) in enumerate(zip(CODE.split("\n"), text.split("\n"), strict=False), 1)
            if a != b
        ]
        assert changed[0] == mutation.line or mutation.operator in ("case", "boolean", "compare")
        assert '"""Docs: 1 < 2 and not 3."""' in text
        assert 'KeyError("1 < 2")' in text or mutation.operator in ("caught",)
        acted.setdefault(mutation.operator, []).append(text.split("\n")[changed[0] - 1].strip())
    assert set(OPERATORS) - acted.keys() == {"negated"}
    assert "if key:" in acted["not"]
    assert "for item in found[:-1]:" in acted["slice"]
    assert "except KeyError:" in acted["caught"]
    assert any("x.size > 2" in line for line in acted["boundary"])
    assert any("(x.name) != key" in line for line in acted["compare"])
    assert "total -= item.size * 2 - 1" in acted["arithmetic"]
    assert "def find(self, key, default=1, strict=False):" in acted["off-by-one"]


def test_an_unknown_place_gives_no_mutant() -> None:
    unknown = [
        _part("slice", 99),
        _part("slice", -1),
        _part("slice", 0, "Box.lost"),
        _part("lost", 0),
    ]
    assert [mutated({"box.py": CODE}, [part]) for part in unknown] == [None] * 4
    assert mutated({"other.py": CODE}, [_part("slice", 0)]) is None


def _part(operator: str, occurrence: int, function: str = "Box.find") -> Part:
    return Part(file="box.py", function=function, operator=operator, occurrence=occurrence)


# --- tests
# ------------------------------------------------------------------------------------------------


def test_hidden_tests_are_cut_whole_and_what_is_empty_then_still_parses() -> None:
    text = (
        "import pytest\n\n@pytest.mark.parametrize(\n    'x', [1,\n 2])\ndef test_a(x):\n    assert"
        " x\n\n"
    )
    text += (
        "class TestB:\n    def test_c(self): pass\n\nclass TestD:\n    def test_e(self):\n       "
        " pass\n\n"
    )
    text += "    def test_f(self): pass\n\ndef test_g(): pass\n"
    left, missing = sources.cut_tests(
        text, [["test_a"], ["TestB", "test_c"], ["TestD", "test_e"], ["TestD", "test_none"]]
    )
    ast.parse(left)
    assert missing == {("TestD", "test_none")}
    assert [
        w in left for w in ("test_a", "parametrize", "test_c", "test_e", "test_f", "test_g")
    ] == [
        *(False, False, False, False),
        *(True, True),
    ]


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("calm/words.py", True),
        ("setup.py", True),
        ("calm/latest.py", True),
        ("src/calm/json.py", True),
        ("tests/helper.py", False),
        ("calm/tests/x.py", False),
        ("calm/test_x.py", False),
        ("conftest.py", False),
        ("src/sitecustomize.py", False),
        ("pyproject.toml", False),
        ("x.pth", False),
        ("src/json.py", False),
        ("_pytest/x.py", False),
        (".recreate/public.json", False),
        ("a.egg-info/entry_points.txt", False),
        ("checks/x.py", False),
    ],
)
def test_which_changes_count(path: str, counts: bool) -> None:
    assert (sources.unacceptable(path, ["checks"], ["src"]) == "") is counts


def test_the_place_of_a_change_is_the_function_that_differs_else_the_first() -> None:
    before = "def first():\n    return 1\n\n\nclass A:\n    def other(self):\n        return 2\n"
    assert patch.changed_place({"a.py": before}, {"a.py": before.replace("2", "3")}) == (
        "a.py",
        "A.other",
    )
    assert patch.changed_place({"a.py": "\n\n" + before}, {"a.py": "X = 1\n\n" + before}) == (
        "a.py",
        "first",
    )
    near = (  # a line that is not the function's own, one away from it
        "X = 1\n\ndef f():\n    return X\n"
    )
    both = {"a.py": near, "b.py": before}
    assert patch.changed_place(
        both, {"a.py": near.replace("1", "2"), "b.py": before.replace("2", "3")}
    ) == (
        "b.py",
        "A.other",
    )


@pytest.mark.parametrize(
    ("at", "new"), [(0, ["x"]), (5_100, []), (5_600, ["x"]), (100, ["@@ -1 +1 @@", ""])]
)
def test_a_small_change_of_a_long_file_is_a_small_diff_that_applies(
    at: int, new: list[str]
) -> None:
    lines = [f"line {n}" for n in range(5_600)]
    before, after = (
        "\n".join(each) + "\n" for each in (lines, [*lines[:at], *new, *lines[at + 1 :]])
    )
    diff = patch.make({"a.py": before}, {"a.py": after})
    assert len(diff.splitlines()) < 15
    assert patch.apply(patch.read(diff), {"a.py": before}) == {"a.py": after}


def test_every_operator_that_a_shipped_recipe_names_is_there() -> None:
    known = {*OPERATORS, *WIDE, "undone"}
    lines = (shipped("benchmarks") / "swe" / "injected.jsonl").read_text("utf-8")
    named = set(re.findall(r'"operator": ?"([^"]+)"', lines))
    assert len(named) > 10
    assert named <= known
