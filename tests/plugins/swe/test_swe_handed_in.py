"""Whatever an agent makes of its folder, or a patch of its paths, is graded: 0 and why, never a
stop."""

from __future__ import annotations

import time

import pytest

from recreate.api.errors import Fault
from recreate.api.ports import Sandbox
from recreate.api.types import Output
from recreate.plugins.swe import patch
from tests.plugins.swe.swe_project import Project

DEEP = (
    "import os\nfor _ in range(1500):\n    os.mkdir('d'); os.chdir('d')\nopen('x.py',"
    " 'w').write('1')"
)
LONG = "for n in range(1000): open('calm/%04d' % n + 'x' * 250, 'w').write('1')"
FAR = (
    "import os\npath = '.'\nfor n in range(8):\n    path += '/' + 'y' * 250; os.mkdir(path)\n"
    "for n in range(900): open(path + '/%03d' % n + 'x' * 200, 'w').write('1')"
)
BIND = (
    "import os,"
    ' socket\nos.unlink("calm/sums.py")\nsocket.socket(socket.AF_UNIX).bind("calm/sums.py")'
)

FOLDERS = {
    "a folder where a file was": (
        "rm calm/sums.py; mkdir calm/sums.py",
        "'calm/sums.py': a folder is in its place",
    ),
    "a file below what was a file": (
        "rm calm/sums.py; mkdir calm/sums.py; echo x > calm/sums.py/x",
        "calm/sums.py/x would lie below calm/sums.py, which is a file",
    ),
    "a package replaced by a file": (
        "rm -rf calm; echo x > calm",
        "calm would be a file and is a folder",
    ),
    "1,500 folders in each other": (f'python3 -c "{DEEP}"', "its path is too long"),
    "1,000 long names": (f'python3 -c "{LONG}"', "800 more, beyond the first 200 changed files"),
    "names longer than a path": (f'python3 -c "{FAR}"', "its path is too long"),
    "a name that is not UTF-8": (
        r"echo x > calm/$'\xff\xfe'.py",
        r"'calm/\udcff\udcfe.py': its path is too long, or",
    ),
    "pipes, sockets and links": (
        (
            "mkfifo calm/pipe; ln -s /nowhere calm/a; ln -s /dev/zero calm/b; ln -sf b README.md;"
            f" python3 -c '{BIND}'"
        ),
        "'calm/sums.py': a link, or no file",
    ),
    "the package by a link": ("mv calm other; ln -s other calm", "'calm': a link, or no file"),
    "a huge file": ("truncate -s 400M calm/sums.py", "'calm/sums.py': larger than 1000000 bytes"),
    "bytes that are no text": (r"printf '\351' >> calm/sums.py", "'calm/sums.py': not a text file"),
    "much in all": (
        "for n in 1 2 3 4 5 6 7; do head -c 900000 /dev/zero | tr '\\0' x > calm/$n.py; done",
        "the answer has 5000000 characters already",
    ),
    "no folder left": (
        "rm -rf ./* .git .recreate",
        "Dropped before grading: tests/test_sums.py (a test)",
    ),
    "git led elsewhere": (
        "rm -rf .git; echo 'gitdir: /etc' > .git; echo '#' >> calm/sums.py",
        "FAIL_TO_PASS 0/2",
    ),
}


def handed_in(project: Project, script: str) -> str:
    sandbox = project.swe.prepare(project.task, project.backend)
    try:
        sandbox.run(script)
        return project.swe.collect(project.task, sandbox)
    finally:
        sandbox.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", FOLDERS)
def test_whatever_a_folder_was_made_into_is_graded(project: Project, what: str) -> None:
    script, says = FOLDERS[what]
    grade = project.grade(handed_in(project, script))
    assert (grade.score, grade.passed) == (0.0, False)
    assert says in grade.evidence
    assert len(grade.evidence) < 100_000


@pytest.mark.parametrize("mode", ["000", "111"])
def test_what_an_agent_may_not_read_itself_is_handed_in(project: Project, mode: str) -> None:
    answer = handed_in(project, f"echo '# mended' >> calm/sums.py; chmod {mode} calm/sums.py calm")
    assert "+# mended" in answer
    assert "left out" not in answer


def test_a_change_is_not_lost_among_a_thousand_new_files(project: Project) -> None:
    answer = handed_in(
        project,
        "mkdir a; for n in $(seq 1000); do echo > a/$n; done; echo '# mended' >> calm/sums.py",
    )
    assert "+# mended" in answer


class Killed:
    """A sandbox in which looking for changes ends as told."""

    backend = "bwrap"

    def __init__(self, output: Output) -> None:
        self.output = output

    def run(self, *_: object, **__: object) -> Output:
        return self.output

    def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    def write(self, *_: object) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(
    "output",
    [
        Output(text="", status=137, limit="disk"),
        Output(text="", status=124, limit="seconds", timed_out=True),
        Output(text="looking\nTraceback", status=1),
        Output(text="looking\n[... 7 bytes cut ...]\n3]}", status=0),
    ],
)
def test_a_folder_that_cannot_be_looked_through_is_the_agents_doing(
    project: Project, output: Output
) -> None:
    sandbox: Sandbox = Killed(output)
    grade = project.grade(project.swe.collect(project.task, sandbox))
    assert grade.score == 0.0
    assert (
        "Left out when it was handed in: everything: it cannot be looked through" in grade.evidence
    )


def test_a_python_that_does_not_start_is_a_fault(project: Project) -> None:
    with pytest.raises(Fault, match="could not be listed"):
        project.swe.collect(project.task, Killed(Output(text="python3: not found", status=127)))


PATCHES = {
    "a path of 300 bytes": (
        f"--- /dev/null\n+++ b/{'x' * 300}\n@@ -0,0 +1 @@\n+x\n",
        "too long for a path",
    ),
    "a path of 6,000 bytes": (
        f"--- /dev/null\n+++ b/{'x/' * 3000}y\n@@ -0,0 +1 @@\n+x\n",
        "too long for a path",
    ),
    "a NUL in a path": ("--- /dev/null\n+++ b/a\x00b\n@@ -0,0 +1 @@\n+x\n", "not a path inside"),
    "half a character": (
        "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+\ud800\n",
        "halves of characters",
    ),
    "a folder as a file": ("--- /dev/null\n+++ b/calm\n@@ -0,0 +1 @@\n+x\n", "is a folder"),
    "below a file": (
        "--- /dev/null\n+++ b/README.md/x\n@@ -0,0 +1 @@\n+x\n",
        "below README.md, which is a file",
    ),
    "below a new file": (
        "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ b/a/b\n@@ -0,0 +1 @@\n+x\n",
        "a/b would lie below a, which is a file",
    ),
    "a name with a slash behind": (
        "--- /dev/null\n+++ b/calm/x.py/\n@@ -0,0 +1 @@\n+x\n",
        "not how that path",
    ),
    "another spelling of a test": (
        (
            "--- a/tests/./test_sums.py\n+++ b/tests/./test_sums.py\n@@ -1 +1 @@\n-import"
            " unittest\n+x\n"
        ),
        "not how that path is written",
    ),
    "numbers of 5,000 digits": (
        f"--- a/README.md\n+++ b/README.md\n@@ -{'9' * 5000} +1 @@\n-x\n+y\n",
        "no change",
    ),
    "a thousand files": (
        "".join(f"--- /dev/null\n+++ b/n{n}.py\n@@ -0,0 +1 @@\n+x\n" for n in range(1000)),
        "changes 1000 files",
    ),
    "17 million characters": ("+" * 17_000_000, "17000000 characters"),
}


@pytest.mark.parametrize("what", PATCHES)
def test_a_patch_with_bad_paths_is_graded(project: Project, what: str) -> None:
    answer, says = PATCHES[what]
    grade = project.grade(answer)
    assert (grade.score, grade.passed) == (0.0, False)
    assert says in grade.evidence


def test_a_patch_cannot_keep_its_reader_busy() -> None:
    many = "x\n" * 200_000
    removed = "-x\n" * 100_000
    hunk = f"--- a/f\n+++ b/f\n@@ -7,100001 +7 @@\n{removed}-y\n+z\n"
    lines = "".join(f"line {n % 150}\n" for n in range(60_000))
    started = time.monotonic()
    with pytest.raises(patch.BadPatch, match="is not in the file"):
        patch.apply(patch.read(hunk), {"f": many})
    diff = patch.make({"f": lines[:50_000]}, {"f": lines})
    assert time.monotonic() - started < 20
    assert patch.apply(patch.read(diff), {"f": lines[:50_000]}) == {"f": lines}


def test_a_hunk_that_moved_is_found_where_it_stands_alone() -> None:
    change = patch.read("--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n-b\n-c\n+d\n")
    assert patch.apply(change, {"f": "a\nbb\nb\nc\n"}) == {"f": "a\nbb\nd\n"}
    assert patch.apply(change, {"f": "a\nb\nc\nxb\ncc\n"}) == {"f": "a\nd\nxb\ncc\n"}
    with pytest.raises(patch.BadPatch, match="more than once"):
        patch.apply(change, {"f": "a\nb\nc\nb\nc\n"})
    with pytest.raises(patch.BadPatch, match="is not in the file"):
        patch.apply(change, {"f": "a\nb\ncd\n"})
