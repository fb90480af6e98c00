"""Prompts: Jinja templates in an immutable sandbox, bounded in work and output; and the JSON object
in a reply.

No loaders, no unknown variable, no autoescape. Whole-line tags leave no blank line behind
(`trim_blocks`, `lstrip_blocks`). What could make a huge value from a small template (powers,
padding, `*` on text) is refused, loops are counted, so a template from a stranger or a model costs
at most a moment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2 import Template as Compiled
from jinja2.exceptions import SecurityError, TemplateAssertionError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.storage.log import decode

MAX_TEXT = 1_000_000
"""Characters a template may make."""
MAX_TURNS = 20_000
"""Turns that all loops and macros of one rendering may take together."""


BRACES = "braces meant as text are written {{ '{{' }} or put in {% raw %}...{% endraw %}"


class _TooMuch(SecurityError):
    """A template that would work or write without end."""


class _Meter:
    """Counts the turns of all loops and macros of one rendering."""

    def __init__(self) -> None:
        self.left = MAX_TURNS

    def tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooMuch(f"its loops take more than {MAX_TURNS} turns")


class _Metered(NodeTransformer):
    """Puts a tick at the head of each loop and macro, and `~` through the bounded join."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._tick(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._tick(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._tick(node)

    def _tick(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        call = nodes.Call(nodes.Name("_tick", "load"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(call).set_lineno(node.lineno))
        return node  # type: ignore[no-any-return]

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.Name("_concat", "load"), node.nodes, [], None, None).set_lineno(
            node.lineno
        )


_FILTERS = (
    "abs capitalize count d default dictsort e escape first float groupby int items last length"
    " list lower map max min reject rejectattr reverse round select selectattr sort title trim"
    " truncate unique upper wordcount wordwrap"
)
_METHODS = (
    "capitalize count endswith find get index isdigit items keys lower lstrip partition"
    " removeprefix removesuffix replace rfind rpartition rsplit rstrip split splitlines startswith"
    " strip title upper values"
)
METHODS = frozenset(_METHODS.split())
"""What a template may call on a text, a list or a dict."""


_OF_A_DICT = frozenset(dir(dict))


class _Bounded(ImmutableSandboxedEnvironment):
    """The sandbox with bounds: what could make a huge value from a small template is refused."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            autoescape=False,
            keep_trailing_newline=False,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_text,
            cache_size=0,
        )
        self.filters = {name: f for name, f in self.filters.items() if name in _FILTERS.split()}
        self.filters |= {
            "indent": _indent,
            "join": lambda value, by="": _join([_text(v) for v in value], _text(by)),
            "replace": lambda value, old, new, count=-1: _replace(
                _text(value), _text(old), _text(new), count
            ),
            "string": lambda value: str(_text(value)),
            "tojson": lambda value: json.dumps(_measured(value), ensure_ascii=False, default=str),
            "sum": lambda value: sum(float(v) if isinstance(v, float) else int(v) for v in value),
        }
        self.globals = {
            "range": _range,
            "namespace": self.globals["namespace"],
            "dict": dict,
            "_concat": _concat,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Metered().visit(super()._parse(source, name, filename))
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        if attribute == "replace" and isinstance(obj, str):
            return partial(_replace, obj)  # str's own, within the bounds
        if type(obj) is dict and attribute in obj and attribute not in _OF_A_DICT:
            return obj[attribute]  # what the sandbox would find too, after an exception
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> None:
        """Refuse `str.format`: it pads without end. Answering None lets `is_safe_attribute` refuse
        it."""
        return None

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        message = (
            f"{attribute!r} of a {type(obj).__name__} is not for templates; {instead_of(attribute)}"
        )
        return self.undefined(message, exc=SecurityError)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str | bytes | list | tuple | dict | int | float) and attr not in METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise _TooMuch("powers are not for prompts")
        if operator == "+":
            if (
                hasattr(left, "__len__")
                and hasattr(right, "__len__")
                and len(left) + len(right) > MAX_TEXT
            ):
                raise _TooMuch(f"a value grows over {MAX_TEXT} characters")
        elif isinstance(left, str) and operator == "%":
            raise _TooMuch("write {{ value }} in place of '%' formatting")
        elif not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise _TooMuch(f"{operator!r} is for numbers only")
        elif operator == "*" and max(abs(left), abs(right)) > 1e9:
            raise _TooMuch("a number grows over 1e9")
        return super().call_binop(context, operator, left, right)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        return _join(parts)


def _join(parts: Iterable[str], by: str = "") -> str:
    kept = list[str]()
    left = MAX_TEXT
    extra = len(by)
    for part in parts:
        left -= len(part) + extra
        if left < 0:
            raise _TooMuch(f"it makes more than {MAX_TEXT} characters")
        kept.append(part)
    return by.join(kept)


def _concat(*parts: Any) -> str:
    return _join(str(_text(part)) for part in parts)


def _replace(value: str, old: str, new: str, count: int = -1) -> str:
    if len(value) + (value.count(old)) * len(new) > MAX_TEXT:
        raise _TooMuch(f"a value grows over {MAX_TEXT} characters")
    return value.replace(old, new, count)


def _indent(value: str, width: int = 4, first: bool = False) -> str:
    pad = " " * min(max(width, 0), 80)
    text = _join(str(_text(value)).split("\n"), "\n" + pad)
    return pad + text if first else text


def _range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > MAX_TURNS:
        raise _TooMuch(f"a range of more than {MAX_TURNS}")
    return made


def _measured(value: Any) -> Any:
    """Return `value`, or raise an error when writing it out would be endless (a nested list doubles
    at every level)."""
    left = MAX_TURNS
    todo = [value]
    while todo:
        part = todo.pop()
        left -= 1
        if left < 0:
            raise _TooMuch("a value of too many parts")
        if isinstance(part, Mapping):
            todo += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            todo += part
    return value


def _text(value: Any) -> Any:
    """Return what a print statement writes; a list or dict only when it is small."""
    return (
        value
        if isinstance(value, str)
        else str(_measured(value))
        if isinstance(value, Iterable)
        else value
    )


_ENVIRONMENT = _Bounded()
OWN_NAMES = frozenset(["_tick", "_concat"])
"""Names that only the bounds use."""


def instead_of(method: str) -> str:
    """Return what a template may use where it calls a method that is not for templates."""
    if method in _ENVIRONMENT.filters:
        return f"write it as a filter: {{{{ value|{method}(...) }}}}"
    filters = " ".join(sorted(_ENVIRONMENT.filters))
    return (
        f"calls that are: {' '.join(sorted(METHODS))}; filters, as in {{{{ value|upper }}}}:"
        f" {filters}"
    )


def parse_template(source: str) -> nodes.Template:
    """Return the template's syntax tree, ticks included. Raises jinja2.TemplateSyntaxError, which
    has `lineno`."""
    return _ENVIRONMENT.parse(source)


@lru_cache(maxsize=512)
def _compile(file: str, source: str) -> Compiled:
    # keyed by the text, so that candidates which share a template share its compilation
    code = _ENVIRONMENT.compile(source, name=file, filename=file)
    return Compiled.from_code(_ENVIRONMENT, code, _ENVIRONMENT.globals, None)


def render_text(file: str, source: str, variables: JsonMap) -> str:
    """Render one template. Raises BadInput (code `bad-template`) that names file and line."""
    try:
        return _compile(file, source).render(variables, _tick=_Meter().tick)
    except (
        TemplateError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
    ) as e:
        raise BadInput(
            f"{file}:{_where(e, file)}: {reason(e)}",
            fix=f"correct that line; {BRACES}",
            code="bad-template",
        ) from None


def reason(error: BaseException) -> str:
    """Return what is wrong with a template, and what it may use where it used something else."""
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    if isinstance(error, TemplateAssertionError) and "filter" in message:
        return f"{message} Filters are: {' '.join(sorted(_ENVIRONMENT.filters))}"
    return str(message)


def _where(error: BaseException, file: str) -> int:
    line = getattr(error, "lineno", None) or 1
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return int(line)


def filled(folder: Path, name: str, variables: JsonMap) -> str:
    """Return the text of `folder/name.md` with its variables filled in."""
    return render_text(f"{name}.md", (folder / f"{name}.md").read_text("utf-8"), variables)


_BRACES = 200
"""Places at which an object is looked for within a reply."""
_ESCAPES = re.compile(r'\\(?:["\\/nrt]|u[0-9a-fA-F]{4}|[bf](?![a-zA-Z]))|\\')


def read_object(text: str) -> JsonDict | None:
    r"""Return the JSON object in a reply: the whole of it, a fenced block, the outermost braces, or
    what  the last braces hold that can be read; else None.

    A backslash that begins no escape of JSON is one of the text, as where a model writes `"\(x\)"`,
    `"\d"` or `"\boxed"`: no text means to have a backspace or a form feed before a letter.
    """
    text = _ESCAPES.sub(lambda found: found[0] if len(found[0]) > 1 else r"\\", text)
    blocks = (part.partition("\n") for part in text.split("```")[1:])
    fenced = [body for language, _, body in blocks if language.strip().casefold() in ("json", "")]
    start = text.find("{")
    end = text.rfind("}")
    for candidate in (text, *fenced, text[start : end + 1] if 0 <= start < end else ""):
        try:
            found = decode(candidate, strict=False)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return _among_prose(text)


def _among_prose(text: str) -> JsonDict | None:
    """Return the last object of at least one key that begins at a brace and is whole, whatever
    braces stand before and after it, such as a template's marks that a reply speaks of."""
    reader = json.JSONDecoder(strict=False)
    at = 0
    last = None
    for _ in range(_BRACES):
        at = text.find("{", at)
        if at < 0:
            break
        try:
            end = reader.raw_decode(text, at)[1]
            found = decode(text[at:end], strict=False)
        except (ValueError, RecursionError):
            at += 1
            continue
        last = found or last
        at = end
    return last


def object_of(**properties: Any) -> JsonDict:
    """Return the JSON schema of an object of exactly these properties, each with its own schema:
    what a reply is held to."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
