"""Rows of SWE-bench and its kin in the container images that were published for them.

What is worked on is the image's /testbed, with what was compiled and generated in it, as one commit
without a past; the Python is the image's own. None of what decides the other tasks' grades
(grader.py) knows of images: this file and an image's digest are part of the key of what is cached
and attempted in one.
"""

from __future__ import annotations

import copy
import platform
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from recreate.api import paths
from recreate.api.errors import IMAGE, UNSOUND, Fault
from recreate.api.ports import ImageBackend, Limits, OpensImages, Sandbox, SandboxBackend
from recreate.api.types import Output, Record, Split, Task, digest
from recreate.domains.python_env import OLDEST
from recreate.plugins.swe import patch, test_run
from recreate.plugins.swe.case import Case
from recreate.plugins.swe.domain import Swe
from recreate.plugins.swe.facts import Shown
from recreate.plugins.swe.grader import meaning
from recreate.plugins.swe.rows import PublishedRow, Refusal, dealt, holds_rows, read
from recreate.plugins.swe.sources import Say
from recreate.plugins.swe.swebench import (
    RowCase,
    Specification,
    linked,
    specification,
    usable,
    write,
)
from recreate.plugins.swe.trees import publish, tree, weight
from recreate.storage.files import once

FOLDER = "/testbed"
_PUBLISHED = frozenset(
    {
        "astropy/astropy",
        "django/django",
        "matplotlib/matplotlib",
        "mwaskom/seaborn",
        "pallets/flask",
        "psf/requests",
    }
    | {
        "pydata/xarray",
        "pylint-dev/pylint",
        "pytest-dev/pytest",
        "scikit-learn/scikit-learn",
        "sphinx-doc/sphinx",
    }
    | {"sympy/sympy"}
)
"""The repositories of SWE-bench's test split, each of whose rows has an image."""
_LOOK = """
env=/opt/miniconda3/envs/testbed/bin
if [ -x $env/python3 ]; then PATH=$env:$PATH; fi
echo "path $PATH"
python3 -I -c 'import sys; print("version", ".".join(map(str, sys.version_info[:2])))'
for one in /opt/miniconda3/bin/python3 python3 /usr/bin/python3 /usr/local/bin/python3; do
    if "$one" -I -c 'import sys; sys.exit(sys.version_info < (3, 7))'; then
        echo "runner $(command -v "$one")"
        break
    fi
done 2>/dev/null
"""


def image_of(row: PublishedRow) -> str:
    """The name of the image that a row runs in: the one that it says, else SWE-bench's own; '' for
    none."""
    if row.image or row.mirror or row.repo not in _PUBLISHED:
        return row.image
    processor = "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"
    # the hub allows no two underscores in a name
    return f"swebench/sweb.eval.{processor}.{row.instance_id}:latest".replace(
        "__", "_1776_"
    ).lower()


class ImagePython(Record):
    """What an image has. path: its programs, with the Python that tests run on first; version: of
    that, '' for none; runner: a Python from 3.7 on."""

    path: str
    runner: str
    version: str = ""

    @property
    def observed(self) -> bool:
        """Whether the programs that ask tests for what they see run on the Python of the tests."""
        return bool(self.version) and tuple(map(int, self.version.split("."))) >= OLDEST


class RowImage:
    """The image of a row, as a backend: nothing of this machine is mounted into its sandboxes, and
    PATH is its own."""

    def __init__(self, name: str, backend: ImageBackend, say: Say) -> None:
        self.name, self.probe, self.digest = backend.name, backend.probe, backend.digest
        self._called, self._backend, self._say = name, backend, say
        file = paths.home() / "swe" / "images" / f"{digest([_LOOK, self.digest])}.json"
        self.python = ImagePython.model_validate_json(once(file, self._look).read_text())

    def _look(self, fresh: Path) -> None:
        with_nothing = self._backend.open(source=test_run.nothing()[0])
        try:
            lines = with_nothing.run(["/bin/sh", "-c", _LOOK]).text.splitlines()
        finally:
            with_nothing.close()
        told = (line.partition(" ") for line in lines)
        found = {
            key: value for key, _, value in told if value and key in ("path", "version", "runner")
        }
        if not {"path", "runner"} <= found.keys():
            raise Fault(
                f"the image {self._called} has no Python from 3.7 on: {' '.join(lines)[-300:]}",
                code=IMAGE,
            )
        fresh.write_text(ImagePython.model_validate(found).model_dump_json())

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        """As the port says, but that mounts are left out, and what `source` takes is added to the
        limit of disk."""
        own = {
            **{name: value for name, value in (env or {}).items() if name != "PYTHONPATH"},
            "PATH": self.python.path,
        }
        limits, more = limits or Limits(), (weight([source]) >> 20) + 1 if source else 0
        limits = limits.model_copy(update={"disk_mb": limits.disk_mb + more})
        return _RowSandbox(
            self._backend.open(source=source, env=own, limits=limits), self.python.runner
        )

    def files(self) -> Path:
        """Its /testbed, but for every repository in it."""

        def build(fresh: Path) -> None:
            self._say(f"copying {FOLDER} out of {self._called}, once")
            self._backend.copy(FOLDER, fresh, without={".git", "__pycache__"})

        return tree(["image", self.digest], "image", build)


class _RowSandbox:
    """A sandbox in which the programs of ours, which begin with `python3 -I`, run on the image's
    `runner`."""

    def __init__(self, sandbox: Sandbox, runner: str) -> None:
        self.backend, self.write, self.read, self.close = (
            sandbox.backend,
            sandbox.write,
            sandbox.read,
            sandbox.close,
        )
        self._sandbox, self._runner = sandbox, runner

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        if not isinstance(command, str) and [*command[:2]] == ["python3", "-I"]:
            command = [self._runner, *command[1:]]
        return self._sandbox.run(command, timeout, stdin)


class ImageCase(RowCase):
    """A row in its image. image: None where only what the row itself says is asked.

    Its package is installed there: PYTHONPATH is not touched, and pytest is started as SWE-bench's
    harness does.
    """

    def __init__(
        self, row: PublishedRow, spec: Specification, image: RowImage | None, say: Say
    ) -> None:
        self.image = image
        super().__init__(row, spec, None, say)
        self.withholds = self.withholds and image is not None and image.python.observed

    def _source(self) -> list[object]:
        row = self.row
        return [
            "image",
            self.image.digest if self.image else "",
            _version(),
            row.patch if row.breaks else "",
        ]

    def base(self) -> Path:
        assert self.image is not None
        files = self.image.files()
        if not self.row.breaks:
            return files

        def build(fresh: Path) -> None:
            linked(files, fresh)
            write(fresh, self._patched(patch.read(self.row.patch), fresh))

        return tree(self._source(), "base", build)

    def start_folder(self) -> Path:
        def build(fresh: Path) -> None:
            linked(self.base(), fresh)
            write(fresh, dict.fromkeys(withheld))
            publish(fresh, [], self.visible_tests(), ignored=False)

        withheld = (
            test_run.files_of(self.row.fail_to_pass)
            if self.row.breaks and self.row.statement.strip()
            else []
        )
        return tree([*self._source(), withheld], "given", build)

    def command(self, tests: Sequence[str]) -> list[str]:
        found = super().command(tests)
        return found[2:] if found[:3] == ["python3", "-m", "pytest"] else found

    def run(
        self,
        backend: SandboxBackend,
        env: Path,
        files: Mapping[str, str | None],
        timeout: float,
        tests: Sequence[str] | None = None,
    ) -> test_run.TestResults:
        installed = copy.copy(self)
        installed.suite = self.suite.model_copy(update={"roots": ()})
        return super(ImageCase, installed).run(backend, env, files, timeout, tests)


class SweInImages(Swe):
    """The domain `swe`: tasks of benchmarks/swe, or rows of SWE-bench; where `backend` opens
    images, rows that have one are attempted and graded in it, and need no clone. The rest is as of
    `Swe`."""

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        repos: Path | None = None,
        env: Path | None = None,
        say: Say | None = None,
        patience: float = 30.0,
        prompt: Shown | None = None,
        backend: SandboxBackend | None = None,
    ) -> None:
        super().__init__(data, repos=repos, env=env, say=say, patience=patience, prompt=prompt)
        self._opens = backend if isinstance(backend, OpensImages) else None
        self._images: dict[str, RowImage] = {}
        self._opening = threading.Lock()

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        """As of `Swe`."""
        if (
            self._tasks is None
            and self._opens is not None
            and self._data is not None
            and holds_rows(self._data)
        ):
            self._tasks, self._refused = self._rows(self._data)
        return super().tasks(split)

    def _rows(self, data: str | Path) -> tuple[list[Task], list[Refusal]]:
        found, refused = read(data)
        splits, rows = dealt(found), [row for row, _ in found]
        wrong = {row.task: why for row in rows if image_of(row) and (why := _unreadable(row))}
        others, left = usable([row for row in rows if not image_of(row)], self._repos)
        usual = {row.task for row in others}
        tasks = []
        for row in rows:
            if row.task in usual:
                tasks.append(
                    RowCase(row, specification(row), self._repos, self._say).task(splits[row.repo])
                )
            elif image_of(row) and row.task not in wrong:
                task = ImageCase(row, specification(row), None, self._say).task(splits[row.repo])
                tasks.append(
                    task.model_copy(update={"facts": {**task.facts, "image": image_of(row)}})
                )
        refused += [
            *left,
            *(Refusal(row.instance_id, wrong[row.task]) for row in rows if row.task in wrong),
        ]
        if refused:
            self._say(
                f"{len(refused)} rows are left out; `recreate tasks check` says which, and why"
            )
        return tasks, refused

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """As of `Swe`; in its image: the image's /testbed as one commit."""
        return super().prepare(task, self._image(task) or backend)

    def lacking(self, task: Task) -> str:
        """As of `Swe`; an image has the Python that its task needs."""
        return "" if "image" in task.facts else super().lacking(task)

    def hidden(self, task: Task) -> list[str]:
        """As of `Swe`; no image is pulled for it."""
        return (
            _in_image(task, None, self._say).hidden()
            if "image" in task.facts
            else super().hidden(task)
        )

    def image(self, task: Task) -> str:
        """What tells the task's image, and what is made of it, from every other; '' for a task of
        none."""
        image = self._image(task)
        return digest([image.digest, _version()]) if image else ""

    def _image(self, task: Task) -> RowImage | None:
        """Raises Fault when the task's image cannot be had."""
        name = task.facts.get("image")
        if name is None:
            return None
        if self._opens is None:
            raise Fault(
                f"{task.id} runs in the image {name}",
                fix="--sandbox docker, or podman",
                code=UNSOUND,
            )
        if name not in self._images:
            with self._opening:
                if name not in self._images:
                    self._images[name] = RowImage(
                        name, self._opens.image(name, FOLDER, self._say), self._say
                    )
        return self._images[name]

    def _case(self, task: Task) -> Case:
        image = self._image(task)
        return _in_image(task, image, self._say) if image else super()._case(task)

    def _environment(self, case: Case) -> Path:
        """In an image: our own, of which nothing is used there."""
        return Path(sys.prefix) if isinstance(case, ImageCase) else super()._environment(case)

    def _check_copies(self, case: Case, backend: SandboxBackend) -> None:
        if not isinstance(case, ImageCase):  # in which nothing can be masked
            super()._check_copies(case, backend)

    def _run(
        self,
        backend: SandboxBackend,
        case: Case,
        files: Mapping[str, str | None],
        timeout: float,
        tests: Sequence[str] | None = None,
    ) -> test_run.TestResults:
        image = case.image if isinstance(case, ImageCase) else None
        return super()._run(image or backend, case, files, timeout, tests)


def _in_image(task: Task, image: RowImage | None, say: Say) -> ImageCase:
    row, spec = PublishedRow.model_validate(task.facts["row"]), task.facts["specification"]
    return ImageCase(row, Specification.model_validate(spec), image, say)


def _unreadable(row: PublishedRow) -> str:
    """What is wrong with its patches, as far as they say it without the sources."""
    try:
        if not patch.read(row.patch):
            return "its patch changes nothing"
        return "" if row.breaks or patch.read(row.test_patch) else "it has no test_patch"
    except patch.BadPatch as e:
        return f"a patch of it cannot be read: {e}"


@cache
def _version() -> str:
    """Of what this file does with an image."""
    return meaning(Path(__file__).read_text(encoding="utf-8"))
