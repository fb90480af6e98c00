"""What domain.toml of a domain of rows says: docs/format.md has its lines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from recreate.api.config import Config, Split
from recreate.api.types import digest
from recreate.domains.rows import Columns


class ScorerSettings(Config):
    """The table [scorer] of domain.toml.

    pass_at      the score from which an answer has passed; default: 1, of f1 0.8, of a judge 0.7
    tolerance    numeric: how far off a number may be, as a part of the expected one or, below 1, as
                 it is
    ignore_case  exact: capitals do not count
    longest      contains: characters that an answer may have; 0: 100, and 10 times the expected
                 text
    seconds      tests, sql, math, snippet, analysis, FILE.py:function: for one answer, by the
                 clock; math, json-schema: of CPU time
    database     sql: the file among the row's that is the database, or a script that makes it;
                 default: the only one
    apart        of files that say it, without effect: `tests` always runs the answer apart
    answer_file  tests: the file that a text in the gold column is, and that a command may be told
                 of
    """

    pass_at: float | None = Field(default=None, gt=0, le=1)
    tolerance: float = Field(default=1e-6, ge=0, le=1e9)
    ignore_case: bool = False
    longest: int = Field(default=0, ge=0)
    seconds: float = Field(default=30.0, gt=0, le=3600)
    database: str = ""
    apart: bool = False
    answer_file: str = Field(default="solution.py", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}$")


class Shares(Config):
    """How groups are dealt where no column says the split. A group's place is its digest's, so it
    never moves."""

    train: float = Field(default=0.4, ge=0, le=1)
    validation: float = Field(default=0.3, ge=0, le=1)
    test: float = Field(default=0.3, ge=0, le=1)
    seed: int = 0

    @model_validator(mode="after")
    def _check_shares(self) -> Shares:
        if abs(self.train + self.validation + self.test - 1) > 1e-6:
            raise ValueError("train, validation and test must add up to 1")
        return self

    def split(self, group: str) -> Split:
        """Return the split of a group: by its digest and the seed alone, whatever other groups
        there are."""
        place = int(digest([self.seed, group], 12), 16) / 16**12
        return (
            "train"
            if place < self.train
            else "validation"
            if place < self.train + self.validation
            else "test"
        )

    def of_train(self, group: str) -> Split:
        """Return the same, of rows that are called train where none are called validation."""
        both = self.train + self.validation
        place = int(digest([self.seed, "train", group], 12), 16) / 16**12
        return "train" if not both or place * both < self.train else "validation"


class Definition(Config):
    """What domain.toml says. data: a path from its folder, or hf:NAME; answer_file: what an agent
    writes; requires: packages of the Python in the sandbox; python: its version, '' for the one
    that runs recreate.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    data: str
    score: str
    about: str = ""
    answer_file: str = Field(default="answer.txt", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")
    requires: tuple[str, ...] = ()
    python: str = ""
    columns: Columns
    splits: Shares = Shares()
    scorer: ScorerSettings = ScorerSettings()


class Wanted(Config):
    """What a command or a caller says; '' for what is left open."""

    data: str = ""
    score: str = ""
    columns: Columns = Columns()
