"""The command line: `recreate COMMAND --help`.

--json puts one object (lists: JSON lines) on stdout; progress and prose go to stderr. Exit codes: 0
done, 1 our fault, 2 bad input, 3 stopped by the budget, 4 a check failed, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import io
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from recreate.api.errors import RecreateError


def main() -> NoReturn:
    """Run the command of sys.argv and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an agent may have printed anything
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before there was a command: the program was being loaded
        from recreate.api.errors import Interrupted

        code = _fail(Interrupted("interrupted"), "--json" in sys.argv)
    _settle(code)
    sys.exit(code)


def _settle(code: int) -> None:
    """Let what was said be how it ended: one more Ctrl-C ends the process sooner, with the same
    code."""
    import atexit
    import os
    import signal

    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    # Python takes handlers of its own away at its end
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def run(arguments: list[str]) -> int:
    """Run a command; whatever goes wrong becomes one message with a fix, and an exit code."""
    import typer

    from recreate.api.errors import BadInput, Interrupted, RecreateError
    from recreate.cli.app import program

    # typer carries its own click since 0.26 and publishes only this much of it
    kinds: Any = typer.BadParameter.__mro__
    usage_error, click_error = kinds[1:3]
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in ours
    try:
        code = program().main(arguments, prog_name="recreate", standalone_mode=False)
        # typer's own word for a Ctrl-C that no command of ours answered
        if code == Interrupted.exit_code:
            return _fail(Interrupted("interrupted"), as_json)
        return code if isinstance(code, int) else 0
    except RecreateError as e:
        return _fail(e, as_json)
    except usage_error as e:
        context = getattr(e, "ctx", None)
        if type(e).__name__ == "NoArgsIsHelpError" and not as_json:
            sys.stderr.write(e.format_message() + "\n")
            return BadInput.exit_code
        from recreate.cli.variants import tell_absent

        path = context.command_path if context else "recreate"
        hint = f"{tell_absent(path.partition(' ')[2])}{path} --help shows what there is"
        return _fail(BadInput(e.format_message(), fix=hint, code="usage"), as_json)
    except click_error as e:
        return _fail(BadInput(e.format_message(), code="usage"), as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(Interrupted("interrupted"), as_json)
    except BaseException as e:
        if isinstance(e, BrokenPipeError) or isinstance(e.__context__, BrokenPipeError):
            _hush()  # click leaves by SystemExit(1) when the pipe breaks
            return 0
        from recreate.api.theirs import attribute_error

        return _fail(attribute_error(e) or _ours(e), as_json)  # also of a part that calls sys.exit


def _fail(error: RecreateError, as_json: bool) -> int:
    from recreate.cli.terminal import fail

    return fail(error, as_json)


def _hush() -> None:
    """Nobody reads our stdout any more (`| head`): the flush at exit must not complain about it."""
    import os

    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _ours(error: BaseException) -> RecreateError:
    """Say a mistake of ours in one line: the traceback goes to a file, a full disk is said to be
    one."""
    import traceback

    from recreate.api.errors import BadInput, Fault
    from recreate.api.paths import home
    from recreate.api.types import digest
    from recreate.storage.files import explain_refusal, is_full
    from recreate.storage.redact import redact

    if isinstance(error, SystemExit):
        text = f"a part of this command ended the process: sys.exit({error.code!r})"
        return BadInput(
            text,
            fix="mend the domain, model or optimizer of yours that calls sys.exit",
            code="misfit",
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return BadInput(
            "a name is too long for the disk", fix="give a shorter one", code="bad-name"
        )
    if isinstance(error, OSError) and is_full(error):
        place = f" ({error.filename})" if error.filename else ""
        return Fault(
            f"the disk is full{place}", fix="free some space, then the same again", code="disk"
        )
    if isinstance(error, OSError) and (found := explain_refusal(error)):
        return found
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        return BadInput(str(error), fix="move that link away", code="bad-link")
    text = redact("".join(traceback.format_exception(error)))
    message = redact(f"{type(error).__name__}: {error}").partition("\n")[0]
    file = home() / f"crash-{digest(text, 12)}.txt"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o600)
        file.write_text(text, "utf-8", errors="backslashreplace")
    except OSError:
        sys.stderr.write(text)
        return Fault(message, fix="please report the lines above", code="crash")
    return Fault(message, fix=f"please report it with {file}", code="crash")
