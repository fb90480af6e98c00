"""Flags that several commands on attempts have."""

from __future__ import annotations

from typing import Annotated

import typer

OfDomain = Annotated[str, typer.Option("--domain", help="Of one domain.")]
OfSplit = Annotated[str, typer.Option("--split", help="train, validation or test.")]
OfTask = Annotated[str, typer.Option("--task", help="Of one task.")]
Passed = Annotated[bool | None, typer.Option("--passed/--failed", help="Only those.")]
Full = Annotated[bool, typer.Option("--full", help="Every text whole.")]
