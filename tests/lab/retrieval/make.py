"""Makes the set again from a workspace's files.

    python -m tests.lab.retrieval.make MEMORY/DOMAIN/experiences

The rules below are the labels; README.md says how they were chosen.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from recreate.agents.trajectory import cut_middle
from recreate.api.types import Experience
from recreate.storage.redact import redact
from tests.lab.retrieval import HERE, relevant

PROMPT, EVIDENCE, ACTION, OUTPUT, SAW = 1_100, 700, 420, 620, 90


def task(*names: str) -> dict[str, Any]:
    return {"tasks": list(names)}


LEXICAL: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "experience",
        "AttributeError: 'str' object has no attribute 'path'",
        "rule",
        task("url_humanize._replace_if_round_trips-returned-3"),
    ),
    (
        "experience",
        "TypeError: attribute name must be string, not 'tuple'",
        "rule",
        task("funcutils.FunctionBuilder.get_arg_names-arguments-1"),
    ),
    ("experience", "UnidiffParseError: Hunk diff line expected", "rule", task("unidiff-1.0.1")),
    ("experience", "MultipleInvalid for a key marked Remove", "rule", task("voluptuous-0.15.1")),
    (
        "experience",
        "TypeError: '<' not supported between instances of 'type' and 'type'",
        "rule",
        task("voluptuous-0.14.2"),
    ),
    (
        "experience",
        "ValueError: could not convert string to float: '126,000'",
        "rule",
        task("tabulate-0.8.9"),
    ),
    (
        "experience",
        "TypeError: ord() expected a character, but string of length 0 found",
        "rule",
        task("wcwidth-0.2.9"),
    ),
    ("experience", "NULLS FIRST NULLS LAST Keyword.Order", "rule", task("sqlparse-0.5.1-order")),
    ("experience", "IndexedSet slice after pop", "rule", task("boltons-26.1.0-setutils")),
    (
        "experience",
        "test_heap_queue KeyError: 'a'",
        "rule",
        task("queueutils.BasePriorityQueue.remove-off-by-one-1"),
    ),
    (
        "experience",
        "test_fileperms endswith 770",
        "rule",
        task("fileutils.FilePerms._FilePermProperty._update_integer-off-by-one-1"),
    ),
    (
        "experience",
        "CacheInfo(hits=0, misses=0, maxsize=2, currsize=1) != (0, 0, 2, 0)",
        "rule",
        task("__init__._TimedCache.clear-statement-1"),
    ),
    (
        "experience",
        "'function' object has no attribute '__doc_'",
        "rule",
        task("cacheutils.cachedproperty.__init__-text-0"),
    ),
    ("experience", "natural_list 'one and two'", "rule", task("lists.natural_list-off-by-one-1")),
    ("experience", "naturalday 'Feb 03' == 'tomorrow'", "rule", task("time.naturalday-case-1")),
    (
        "experience",
        "semver test_should_bump_patch",
        "rule",
        task("version.Version.bump_patch-arithmetic-0"),
    ),
    ("experience", "parse named_fields {user-id}", "rule", task("parse-1.20.2")),
    ("experience", "strptime %z utcoffset tzinfo None", "rule", task("parse-1.22.3")),
    (
        "experience",
        "isodate test_repr 10 years, 10 months, 10 days",
        "rule",
        task("duration.Duration.__str__-statement-0"),
    ),
    (
        "experience",
        "html5_serialize_simple_color '#000000' == '000000'",
        "rule",
        task("html5.html5_serialize_simple_color-text-0"),
    ),
    (
        "experience",
        "complement(complement(None))",
        "rule",
        task("setutils._ComplementSet.__repr__-compare-0"),
    ),
    ("experience", "toolz interpose StopIteration", "rule", task("toolz-1.2.0")),
    ("experience", "sqlparse get_type UNKNOWN WITH comment", "rule", task("sqlparse-0.4.4")),
    (
        "experience",
        "OrderedMultiDict test_kv_consistency",
        "rule",
        task("dictutils.OrderedMultiDict.values-called-0"),
    ),
    ("experience", "NameError: name is not defined", "rule", {"evidence": "NameError"}),
    (
        "experience",
        "ZeroDivisionError: float division by zero",
        "rule",
        {"evidence": "ZeroDivisionError"},
    ),
    (
        "experience",
        "got an unexpected keyword argument 'reverse'",
        "rule",
        {"evidence": "unexpected keyword argument"},
    ),
    (
        "experience",
        "property 'maxsize' of 'FIFOCache' object has no setter",
        "rule",
        {"evidence": "has no setter"},
    ),
    (
        "experience",
        "UnboundLocalError: cannot access local variable",
        "rule",
        {"evidence": "UnboundLocalError"},
    ),
    (
        "step",
        "unterminated triple-quoted string literal",
        "rule",
        {"output": "unterminated triple-quoted"},
    ),
    (
        "step",
        "the block is not valid Python: unexpected indent",
        "rule",
        {"output": "not valid Python: unexpected indent"},
    ),
    (
        "step",
        "there is no ```python block with a function in it",
        "rule",
        {"output": "there is no ```python block"},
    ),
    (
        "step",
        "the block defines none of the functions shown",
        "rule",
        {"output": "defines none of the functions shown"},
    ),
    (
        "step",
        "the function is the same as before, and the bug still in it",
        "rule",
        {"output": "the function is the same as before"},
    ),
    (
        "step",
        "rewritten: BasePriorityQueue.pop in boltons/queueutils.py",
        "rule",
        {"output": "^rewritten: .*BasePriorityQueue.pop in"},
    ),
    (
        "step",
        "rewritten: split_before in more_itertools/more.py",
        "rule",
        {"output": "^rewritten: split_before in"},
    ),
    ("step", "next(inposed, None)", "rule", {"action": re.escape("next(inposed, None)")}),
]

PARAPHRASE: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "experience",
        "cutting a sequence ahead of every separator ignores the limit on the number of cuts",
        "rule",
        task("more.split_before-compare-1"),
    ),
    (
        "experience",
        "all items of a generator differ and yet duplicates are reported",
        "rule",
        task("itertoolz.isdistinct-flag-1"),
    ),
    (
        "experience",
        "putting a delimiter into something without elements blows up",
        "rule",
        task("toolz-1.2.0"),
    ),
    (
        "experience",
        "chained callables are labelled in the wrong order",
        "rule",
        task("functoolz.Compose.__name__-called-0"),
    ),
    (
        "experience",
        "asking a heap for its smallest when nothing is left",
        "rule",
        task("queueutils.BasePriorityQueue.pop-compare-0"),
    ),
    (
        "experience",
        "taking a job out of a waiting line fails because it is not there any more",
        "rule",
        task("queueutils.BasePriorityQueue.remove-off-by-one-1"),
    ),
    (
        "experience",
        "moving an element to another position of a self-adjusting sequence",
        "rule",
        task("listutils.SplayList.shift-variable-1"),
    ),
    (
        "experience",
        "a piece of text is called as though it were a function when margins are put before lines",
        "rule",
        task("strutils.indent-variable-1"),
    ),
    (
        "experience",
        "two identical web addresses do not compare as equal",
        "rule",
        task("urlutils.URL.__eq__-not-0"),
    ),
    (
        "experience",
        "Unix access rights give the wrong octal digits",
        "rule",
        task("fileutils.FilePerms._FilePermProperty._update_integer-off-by-one-1"),
    ),
    (
        "experience",
        "the spread of a sample around its mean is computed wrongly",
        "read",
        task(
            "statsutils._StatsProperty.__get__-variable-4",
            "statsutils.Stats._get_pow_diffs-arithmetic-0",
        ),
    ),
    (
        "experience",
        "markup of a grid of cells laid out from top to bottom",
        "rule",
        task("tableutils.Table._add_vertical_html_lines-text-0"),
    ),
    (
        "experience",
        "too short rows of a grid are to be padded",
        "rule",
        task("tableutils.Table._fill-arithmetic-1"),
    ),
    (
        "experience",
        "listing the parameters of a callable, those included that can only be given by keyword",
        "rule",
        task("funcutils.FunctionBuilder.get_arg_names-arguments-1"),
    ),
    (
        "experience",
        "deleting a parameter of a generated wrapper must complain when there is none of that name",
        "rule",
        task("funcutils.FunctionBuilder.remove_arg-statement-1"),
    ),
    (
        "experience",
        "the day after today is written as a date and not as a word",
        "rule",
        task("time.naturalday-case-1"),
    ),
    (
        "experience",
        "joining words with commas and a conjunction at the end",
        "rule",
        task("lists.natural_list-off-by-one-1"),
    ),
    (
        "experience",
        "comparing units of time with something else must be refused",
        "rule",
        task("time.Unit.__lt__-returned-1"),
    ),
    (
        "experience",
        "a missing number in powers-of-ten notation crashes",
        "rule",
        task("number.scientific-caught-1"),
    ),
    (
        "experience",
        "selecting entries of a mapping by their names returns everything",
        "rule",
        task("dicttoolz.keyfilter-returned-0"),
    ),
    (
        "experience",
        "are they all alike? it says yes although they differ",
        "rule",
        task("recipes.all_equal-boolean-0"),
    ),
    (
        "experience",
        "walking an arithmetic progression backwards begins one too far",
        "rule",
        task("more.numeric_range.__reversed__-off-by-one-1"),
    ),
    (
        "experience",
        "emptying a store whose entries expire leaves something in it",
        "rule",
        task("__init__._TimedCache.clear-statement-1"),
    ),
    (
        "experience",
        "emptying a store of recently used entries leaves something in it",
        "rule",
        task("cacheutils.LRI.clear-statement-0"),
    ),
    (
        "experience",
        "memoising decorator that throws out the oldest entry reports the wrong settings",
        "rule",
        task("func.fifo_cache-flag-0"),
    ),
    (
        "experience",
        "documentation of a lazily computed attribute is not taken over",
        "rule",
        task("cacheutils.cachedproperty.__init__-text-0"),
    ),
    (
        "experience",
        "nouns that have the same form for one and for many",
        "rule",
        task("__init__.singularize-returned-4"),
    ),
    (
        "experience",
        "a label for people should begin with a capital letter",
        "rule",
        task("__init__.humanize-called-1"),
    ),
    (
        "experience",
        "how many terminal columns faces with a skin colour take",
        "rule",
        task("wcwidth-0.2.9"),
    ),
    (
        "experience",
        "can one release stand in for another while the major number is zero",
        "rule",
        task("version.Version.is_compatible-compare-2"),
    ),
    (
        "experience",
        "a release candidate should become the final release that it announces",
        "rule",
        task("version.Version.next_version-boolean-0"),
    ),
    (
        "experience",
        "a command-line tool hands back an integer where text was expected",
        "rule",
        task("cli.cmd_compare-copied-0"),
    ),
    (
        "experience",
        "a colour in percentages that has no name must be refused",
        "rule",
        task("conversion.rgb_percent_to_name-keyword-0"),
    ),
    (
        "experience",
        "a colour code lost its leading hash sign",
        "rule",
        task("html5.html5_serialize_simple_color-text-0"),
    ),
    (
        "experience",
        "part of a time span is left out when it is printed",
        "rule",
        task("duration.Duration.__str__-statement-0"),
    ),
    (
        "experience",
        "direction of sorting and where missing values go in a database query",
        "rule",
        task("sqlparse-0.5.1-order"),
    ),
    (
        "experience",
        "reading patches with blank context, created and deleted files",
        "rule",
        task("unidiff-1.0.1"),
    ),
    (
        "experience",
        "membership validators must not need to sort what is allowed",
        "rule",
        task("voluptuous-0.14.2"),
    ),
    (
        "experience",
        "a key of a mapping that is to be dropped is complained about instead",
        "rule",
        task("voluptuous-0.15.1"),
    ),
    (
        "experience",
        "time zone is lost when only a clock time is read",
        "rule",
        task("parse-1.22.3"),
    ),
    (
        "experience",
        "placeholders of a template whose names contain a dash",
        "rule",
        task("parse-1.20.2"),
    ),
    (
        "experience",
        "thousands separators stop a text table from being printed",
        "rule",
        task("tabulate-0.8.9"),
    ),
    (
        "experience",
        "escaped brackets in the credentials of a web address",
        "rule",
        task("url_humanize._replace_if_round_trips-returned-3"),
    ),
    (
        "experience",
        "collection of unique elements that keeps their order, cut into pieces after a deletion",
        "rule",
        task("boltons-26.1.0-setutils"),
    ),
    (
        "experience",
        "name given to a computed column when a relation is made from a query",
        "rule",
        task("sqlparse-0.4.3"),
    ),
    (
        "experience",
        "showing a collection that holds everything but some elements",
        "rule",
        task("setutils._ComplementSet.__repr__-compare-0"),
    ),
    (
        "experience",
        "dictionary with several entries a key whose listing is empty",
        "rule",
        task("dictutils.OrderedMultiDict.values-called-0"),
    ),
    (
        "step",
        "the model repeated the code without changing anything",
        "rule",
        {"output": "the function is the same as before"},
    ),
    (
        "step",
        "the reply held prose only and no code",
        "rule",
        {"output": "there is no ```python block"},
    ),
    (
        "step",
        "the answer broke off in the middle of a docstring",
        "rule",
        {"output": "unterminated triple-quoted"},
    ),
    (
        "step",
        "it wrote other functions than those it was asked about",
        "rule",
        {"output": "defines none of the functions shown"},
    ),
    (
        "step",
        "wrong leading white space made the code unreadable to the interpreter",
        "rule",
        {"output": "unexpected indent"},
    ),
    (
        "step",
        "a default value keeps the end of an iterator from escaping",
        "rule",
        {"action": re.escape("next(inposed, None)")},
    ),
    (
        "step",
        "the comparison method of web addresses was written anew",
        "rule",
        {"output": "^rewritten: .*URL.__eq__ in"},
    ),
]

SITUATION: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "experience",
        "when did an attempt end without handing anything in?",
        "rule",
        {"evidence": "There is nothing to grade"},
    ),
    (
        "experience",
        "when did a repair break tests that had passed before?",
        "rule",
        {"evidence": r"PASS_TO_PASS (\d+)/(?!\1\b)\d+"},
    ),
    (
        "experience",
        "when did the visible test pass and a hidden test of the same bug fail?",
        "rule",
        {
            "evidence": r"FAIL_TO_PASS [1-9]\d*/\d+,.*not solved",
            "prompt": "not shown check the same",
        },
    ),
    (
        "experience",
        "when did a rewrite use a name that it had not imported or defined?",
        "rule",
        {"evidence": "NameError"},
    ),
    (
        "experience",
        "a repair made a function return nothing where a sequence was needed",
        "rule",
        {"evidence": "'NoneType' object is not iterable"},
    ),
    (
        "experience",
        "a method was rewritten as if it were given plain text instead of an object",
        "rule",
        {"evidence": r"'str' object has no attribute '(value|_major)'"},
    ),
    (
        "experience",
        "a repair assigned to something that can only be read",
        "rule",
        {"evidence": "has no setter"},
    ),
    (
        "experience",
        "a repair read a variable before anything was put into it",
        "rule",
        {"evidence": "UnboundLocalError"},
    ),
    (
        "experience",
        "a constructor was given an argument that it does not have",
        "rule",
        {"evidence": "unexpected keyword argument"},
    ),
    (
        "experience",
        "filling in a template failed because a value was given twice",
        "rule",
        {"evidence": "got multiple values for keyword"},
    ),
    (
        "step",
        "when did a mechanical mutation save an attempt after the model's own code still failed?",
        "rule",
        {"output": "^with that the failing test still fails; the change that was tried is made"},
    ),
    (
        "step",
        "when was a single line taken out of a reply that had repeated the rest?",
        "rule",
        {"output": "one line of .* is corrected"},
    ),
    (
        "step",
        "suggested change: return another variable",
        "read",
        {
            "action": "^propose$",
            "output": r"- return (d|inflection|normalized)\n.*\+ return (rv|word|url)\n",
        },
    ),
    (
        "step",
        "suggested change: a minus where a plus stands, or the other way round",
        "read",
        {"action": "^propose$", "output": r"_patch - 1\).*_patch \+ 1\)|\(v \+ m\).*\(v - m\)"},
    ),
    (
        "step",
        "suggested change: turn a test for None around",
        "read",
        {"action": "^propose$", "output": "- if self._included is not None"},
    ),
    (
        "step",
        "suggested change: catch another exception",
        "read",
        {"action": "^propose$", "output": "- except IndexError"},
    ),
]


def short(e: Experience) -> Experience:
    """What the set keeps: texts cut as documents cut them, replies and repeated steps left out, no
    path of a machine."""
    steps, seen = [], set()
    for step in e.trace.steps:
        kept = (clean(step.action, ACTION), clean(step.output, OUTPUT))
        if not any(kept) or (
            step.action in ("localize", "propose") and (not kept[1] or kept in seen)
        ):
            continue
        seen.add(kept)
        steps.append(
            {
                "step": step.step,
                "kind": step.kind,
                "status": step.status,
                "observation": clean(step.observation, SAW),
            }
            | {"action": kept[0], "output": kept[1]}
        )
    record = e.model_dump(mode="json")
    trace = {
        k: record["trace"][k]
        for k in ("attempt", "task", "scaffold", "model", "repeat", "ending", "limit")
    }
    whole = {k: record[k] for k in ("id", "domain", "task", "group", "split", "digest", "run")}
    grade = {
        "score": e.grade.score,
        "passed": e.grade.passed,
        "evidence": clean(e.grade.evidence, EVIDENCE, head=True),
    }
    return Experience.model_validate(
        {
            **whole,
            "prompt": clean(e.prompt, PROMPT, head=True),
            "trace": {**trace, "steps": steps},
            "grade": grade,
        }
    )


def clean(text: str, most: int, *, head: bool = False) -> str:
    text = re.sub(
        r"(/[\w.-]+)*/(fresh-home|site-packages|envs|tmp|root|home)/[\w./-]*", "/path", redact(text)
    )
    text = re.sub(r"0x[0-9a-fA-F]{6,}", "0x0", text)
    return text[:most] if head else cut_middle(text.strip(), most, " … ", head=most // 3)


def main(folder: Path) -> None:
    attempted = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            attempted.append(short(Experience.model_validate(json.loads(line)["experience"])))
    with (HERE / "experiences.jsonl").open("w", encoding="utf-8") as file:
        for e in attempted:
            file.write(e.model_dump_json(exclude_defaults=True) + "\n")
    with (HERE / "queries.jsonl").open("w", encoding="utf-8") as file:
        for kind, rows in (
            ("lexical", LEXICAL),
            ("paraphrase", PARAPHRASE),
            ("situation", SITUATION),
        ):
            for n, (grain, text, by, rule) in enumerate(rows):
                found = relevant(grain, rule, attempted)
                row = {
                    "id": f"{kind[0]}{n}",
                    "kind": kind,
                    "grain": grain,
                    "text": text,
                    "by": by,
                    "rule": rule,
                }
                file.write(json.dumps({**row, "relevant": found}, ensure_ascii=False) + "\n")
                print(len(found), kind, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
