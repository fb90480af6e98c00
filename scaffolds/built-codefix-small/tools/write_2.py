#!/usr/bin/env python3
"""Takes a reply with a ```python block on standard input, tries it on the examples that the docstring states, and where
it fails them searches small changes of the faulty file that pass; what passes is written into the one Python file."""

import ast
import copy
import json
import math
import mmap
import os
import random
import re
import resource
import select
import signal
import struct
import sys
import time
from pathlib import Path

START = time.time()
LIMIT = 11.0
STATE = Path(".first.json")
SEP = r"(?:==>|=>|->|==|=|should\s+return|should\s+be|must\s+return|will\s+return|would\s+return|returns?|outputs?|output\s+is|result\s+is|gives?|evaluates\s+to|is|:)"
LIB = {"List": "typing", "Dict": "typing", "Tuple": "typing", "Optional": "typing", "Any": "typing", "Union": "typing",
       "Set": "typing", "Callable": "typing", "Counter": "collections", "defaultdict": "collections", "deque": "collections",
       "reduce": "functools"}
MODULES = ("math", "re", "itertools", "collections", "functools", "string", "hashlib", "random", "heapq", "bisect")


# ---- examples in docstrings

def balanced(text, i):
    """The end of the bracket, quoted text or literal that begins at i; -1 if none."""
    pairs, stack, quote = {"(": ")", "[": "]", "{": "}"}, [], None
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = None
                if not stack:
                    return i + 1
        elif c in "'\"":
            quote = c
        elif c in pairs:
            stack.append(pairs[c])
        elif stack and c == stack[-1]:
            stack.pop()
            if not stack:
                return i + 1
        elif not stack:
            return -1
        i += 1
    return -1


def literal(text):
    """(source, end) of the literal that text begins with, or None."""
    i = len(text) - len(text.lstrip(" \t\n`#"))
    if i >= len(text):
        return None
    c = text[i]
    if c in "[({'\"":
        end = balanced(text, i)
        if end < 0:
            return None
        src = re.sub(r"\s*\n\s*", " ", text[i:end])
        src = re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", src)) if c in "[({" else src
        try:
            ast.literal_eval(src)
        except Exception:
            return None
        return src, end
    m = re.compile(r"[-+]?\s?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)(?:\s*[-+*/]\s*\d+)*").match(text, i)
    if m:
        src, end = m.group().rstrip(), m.end()
        if src.endswith(".") and not text[end:end + 1].isdigit():
            src = src[:-1]
        if re.search(r"\d\s*[-+*/]", src):
            more = re.match(r"\s*=+>?\s*([-+]?\d+\.?\d*)", text[end:])
            if more:
                src, end = more.group(1).rstrip("."), end + more.end()
        return src, end
    m = re.compile(r"[A-Za-z][A-Za-z_]*").match(text, i)
    if m:
        word = m.group()
        if word.lower() in ("true", "false", "none"):
            return word.capitalize(), m.end()
        if word.lower() == "null":
            return "None", m.end()
        rest = text[m.end():].split("\n")[0].strip(" .`)")
        if not rest and word.lower() not in ("the", "a", "an", "it"):
            return repr(word), m.end()
    return None


def docs(tree):
    for f in tree.body:
        if isinstance(f, ast.FunctionDef):
            for s in f.body[:4]:
                if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str):
                    yield f, s.value.value
                    break


def examples(tree):
    """[(expression, expected source)] that the docstrings state."""
    names = [f.name for f in tree.body if isinstance(f, ast.FunctionDef)]
    found = {}

    def add(call, want):
        try:
            ast.parse(call.strip(), mode="eval")
            ast.parse(want.strip(), mode="eval")
        except (SyntaxError, ValueError):
            return
        found.setdefault(call.strip(), want.strip())

    for f, doc in docs(tree):
        doc = doc.expandtabs(4)
        for a, b in (("\u201c", '"'), ("\u201d", '"'), ("\u2018", "'"), ("\u2019", "'"), ("\u279e", "==>"), ("\u2192", "==>"),
                     ("\u27f9", "==>"), ("\u21d2", "==>"), ("\u2794", "==>"), ("\u2013", "-"), ("\u2212", "-")):
            doc = doc.replace(a, b)
        params = [a.arg for a in f.args.posonlyargs + f.args.args]
        before = len(found)
        lines = doc.split("\n")
        rest = []
        i = 0
        while i < len(lines):                                  # doctests
            line = lines[i].strip()
            i += 1
            if not line.startswith(">>>"):
                rest.append(lines[i - 1])
                continue
            source, want = line[3:].strip(), []
            while i < len(lines) and lines[i].strip().startswith("..."):
                source += "\n" + lines[i].strip()[3:]
                i += 1
            j = i
            while j < len(lines) and lines[j].strip() and not lines[j].strip().startswith(">>>"):
                want.append(lines[j].strip())
                j += 1
            try:
                body = ast.parse(source).body[0]
            except (SyntaxError, IndexError):
                rest.append(source)
                continue
            value = getattr(body, "value", None)
            if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Eq) and (not want or want[0] == "True"):
                add(ast.unparse(value.left), ast.unparse(value.comparators[0]))
                i = j
            elif want and value is not None and "#" not in source:
                text = " ".join(want)
                got = literal(text)
                if got:
                    add(source, got[0])
                i = j
            else:
                rest.append(source)
        text = "\n".join(rest)
        for m in re.finditer(r"(?<![\w.])(%s)\s*\(" % "|".join(map(re.escape, names)), text):    # f(x) == y
            end = balanced(text, m.end() - 1)
            if end < 0:
                continue
            call = re.sub(r"\s*\n\s*", " ", text[m.start():end])
            sep = re.match(r"[ \t`]*(?:\n[ \t]*)?(?:[#,]\s*)?(?:it\s+|the\s+)?(?:(?:output|result|answer)\s+)?" + SEP + r"(?:\s*" + SEP + r")*", text[end:])
            if sep:
                got = literal(text[end + sep.end():])
                if got:
                    add(call, got[0])
        for m in re.finditer(r"input\w*\s*(?:[:=]|is)(.*?)output\w*\s*(?:[:=]|is)(?:>|=)*", text, re.I | re.S):
            parts = [p.strip().rstrip(",") for p in m.group(1).split("\n")]
            inner = ", ".join(p for p in parts if p)
            inner = re.sub(r"(?<!['\"\w])[A-Za-z_]\w*\s*[:=](?!=)\s*", "", inner)
            try:
                args = ast.literal_eval("(" + inner + ",)")
            except Exception:
                continue
            got = literal(re.sub(r"^\s*\w+\s*[:=]\s*", "", text[m.end():]))
            if got:
                if len(args) != len(params) and len(args) == 1 and isinstance(args[0], tuple):
                    args = args[0]
                if len(args) == len(params):
                    add(f"{f.name}({', '.join(map(repr, args))})", got[0])
        if len(found) == before and params:
            for m in re.finditer(r"(?<!\w)%s\s*(?:[=:]|is)(?!=)\s*" % re.escape(params[0]), text, re.I):    # for x = 1 ...
                at, args = m.end(), []
                for k, p in enumerate(params):
                    if k:
                        n = re.compile(r"[\s,;]*(?:and\s+)?%s\s*(?:[=:]|is)\s*" % re.escape(p), re.I).match(text, at)
                        if not n:
                            break
                        at = n.end()
                    got = literal(text[at:])
                    if not got:
                        break
                    args.append(got[0])
                    at += got[1]
                if len(args) < len(params):
                    continue
                more = re.search(r"(?<!\w)%s\s*=(?!=)" % re.escape(params[0]), text[at:])
                near = text[at:at + min(300, more.start() if more else 300)]
                for n in list(re.finditer(r"(?:returns?|outputs?)\s*(?:should be|is|=|:)?(?=\s*[-\d\[({'\"TFN])", near)) + list(re.finditer(SEP + r"(?:\s*" + SEP + r")*\s*", near[:90])):
                    got = literal(text[at + n.end():])
                    if got:
                        add(f"{f.name}({', '.join(args)})", got[0])
                        break
        if len(found) == before and len(params) == 1:
            for line in rest:                                                      # [1, 2] ==> 3
                line = re.sub(r"^\s*(?:[-*]\s+|\d+[.)]\s+|for\s+|given\s+|examples?\s*\d*:?\s*)*", "", line, flags=re.I)
                got = literal(line)
                if got:
                    sep = re.match(r"[ \t`,]*(?:the\s+)?(?:(?:output|result|answer)\s+)?" + SEP + r"(?:\s*" + SEP + r")*", line[got[1]:])
                    want = literal(line[got[1] + sep.end():]) if sep else None
                    if want:
                        add(f"{f.name}({got[0]})", want[0])
    defs = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    for n in names:                                                                # decode(encode(x)) == x
        m = re.match(r"(.*)(decode|decrypt|decompress|deserialize)(.*)", n)
        other = m and m.group(1) + m.group(2).replace("de", "en" if m.group(2) in ("decode", "decrypt") else "", 1) + m.group(3)
        if m and other not in defs and m.group(2) == "decompress":
            other = m.group(1) + "compress" + m.group(3)
        if m and other in defs and len(defs[n].args.args) == len(defs[other].args.args) == 1:
            for s in ("abcdefgh", "hello world", "xyz", "a", "qwertyuiopasd"):
                add(f"{n}({other}({s!r}))", repr(s))
    return list(found.items())[:30]


# ---- other inputs, to tell candidates apart

def vary(v):
    if isinstance(v, bool):
        return [not v]
    if isinstance(v, int):
        return [v + 1, v - 1, v + 2, 0, 1, -v, v + 7, 2 * v]
    if isinstance(v, float):
        return [v + 0.5, -v, v * 2]
    if isinstance(v, str):
        return [v[::-1], v[1:], v[:-1], v + v, v.swapcase(), v + v[:1], v[1:2] + v, v[:1], ""]
    if isinstance(v, (list, tuple)):
        t, l = type(v), list(v)
        out = [l[::-1], l[1:], l[:-1], l + l[:1], l + l, l[1:] + l * 3, l[:1], l[len(l) // 2:] + l[:len(l) // 2]]
        for k in range(min(len(l), 4)):
            for w in vary(l[k])[:3]:
                out.append(l[:k] + [w] + l[k + 1:])
        return [t(x) for x in out]
    if isinstance(v, dict):
        ks = list(v)
        return [{k: v[k] for k in ks[1:]}, {k: v[k] for k in ks[:-1]}, {k: v[k] for k in ks[::-1]}] + [
            {**v, k: w} for k in ks[:2] for w in vary(v[k])[:2]]
    return []


def probes(pairs):
    out, rng = [], random.Random(0)
    for call, _ in pairs:
        node = ast.parse(call, mode="eval").body
        for c in ast.walk(node):
            for k, a in enumerate(c.args if isinstance(c, ast.Call) else []):
                try:
                    new = vary(ast.literal_eval(a))
                except Exception:
                    continue
                for w in new:
                    c.args[k] = ast.Constant(value=w)
                    out.append(ast.unparse(node))
                c.args[k] = a
    out = sorted(set(out) - {c for c, _ in pairs})
    rng.shuffle(out)
    return out[:60]


# ---- running candidates

class Slow(BaseException):
    pass


def ring(*_):
    raise Slow()


def same(got, want):
    if isinstance(want, float) and isinstance(got, (int, float)) and not isinstance(got, bool):
        if math.isclose(got, want, rel_tol=1e-7, abs_tol=1e-9):
            return True
        digits = len(repr(want).partition(".")[2])
        return digits >= 2 and "e" not in repr(want) and abs(got - want) <= 0.51 * 10 ** -digits
    if type(got) in (list, tuple) and type(got) is type(want):
        return len(got) == len(want) and all(same(a, b) for a, b in zip(got, want))
    return got == want


def libs():
    space = {"__name__": "solution"}
    for m in MODULES:
        space[m] = __import__(m)
    for n, m in LIB.items():
        space[n] = getattr(__import__(m), n)
    return space


def value(code, space, cpu):
    signal.setitimer(signal.ITIMER_REAL, cpu, cpu)
    try:
        return eval(code, space)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


PACE = [0.004]                                                   # seconds that one call may take


def sort_of(v):
    return "" if v is None else "number" if isinstance(v, (int, float)) and not isinstance(v, bool) else type(v).__name__


def measure(tree, tests, extra, base, full=False):
    """(examples passed, fingerprint on other inputs, exceptions there, slowest); the fingerprint only if all pass or full."""
    cpu = .4 if full else PACE[0]
    worst = slow = 0
    kinds = []
    space = dict(base)
    good = 0
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
        try:
            exec(compile(tree, "s", "exec"), space)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for code, want in tests:
            when = time.process_time()
            try:
                out = value(code, space, cpu)
                kinds.append(sort_of(out))
                good += bool(same(out, want))
            except Exception:
                kinds.append("")
            worst = max(worst, time.process_time() - when)
    except (Slow, Exception):
        return good, "", 0, worst if not full else [worst, kinds]
    if good < len(tests) and not full:
        return good, "", 0, worst
    marks, bad = [], 0
    for code in extra:
        if slow > 2:
            marks.append("!Slow")
            continue
        try:
            marks.append(repr(value(code, space, cpu))[:300])
        except (Slow, Exception) as e:
            marks.append("!" + type(e).__name__)
            bad += 1
            slow += isinstance(e, Slow)
    return good, "%d.%x.%d" % (len(set(marks)), hash(tuple(marks)) & 0xffffffffffff, len(marks)), bad, worst if not full else [worst, kinds]


def run_all(jobs, tests, extra, until, workers=2, full=False):
    """jobs: [(tree, edits)]; yields {index: result} of those run in time, in forked workers that may hang and are replaced."""
    results, seen = {}, mmap.mmap(-1, 8 * workers)
    live = {}

    def start(w, first):
        r, wr = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(r)
                null = os.open(os.devnull, os.O_RDWR)
                for fd in (0, 1, 2):
                    os.dup2(null, fd)
                resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
                signal.signal(signal.SIGALRM, ring)
                sys.setrecursionlimit(400)
                base = libs()
                for i in range(first, len(jobs), workers):
                    struct.pack_into("q", seen, 8 * w, i)
                    if time.time() > until:
                        break
                    tree, edits = jobs[i]
                    olds = []
                    try:
                        for node, field, new in edits:
                            olds.append((node, field, getattr(node, field)))
                            setattr(node, field, new)
                        res = measure(tree, tests, extra, base, full=full)
                    except (Slow, Exception):
                        res = (0, "", 0, [0, []] if full else 0)
                    for node, field, old in reversed(olds):
                        setattr(node, field, old)
                    if res[0] or full:
                        os.write(wr, (json.dumps([i, *res]) + "\n").encode())
            finally:
                os._exit(0)
        os.close(wr)
        live[w] = [pid, r, b"", -1, time.time()]

    for w in range(workers):
        struct.pack_into("q", seen, 8 * w, -1)
        start(w, w)
    while live:
        ready = select.select([v[1] for v in live.values()], [], [], 0.1)[0]
        now = time.time()
        for w in list(live):
            pid, r, buf, last, when = live[w]
            ended = False
            if r in ready:
                data = os.read(r, 65536)
                ended = not data
                buf += data
                *whole, buf = buf.split(b"\n")
                for line in whole:
                    i, *res = json.loads(line)
                    results[i] = res
                live[w][2] = buf
            at = struct.unpack_from("q", seen, 8 * w)[0]
            if at != last:
                live[w][3], live[w][4] = at, now
            stuck = not ended and now - live[w][4] > (2.5 if full else max(.7, 8 * PACE[0]))
            if ended or stuck or now > until + 1.5:
                if not ended:
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(r)
                del live[w]
                if stuck and now < until:
                    start(w, at + workers)
                elif ended and now < until and at + workers < len(jobs) and at >= 0:
                    start(w, at + workers)                     # it died on a candidate
    return results


# ---- small changes of a program

PRIOR = {"const": 16, "cmp": 10, "binop": 9, "name": 12, "logic": 6, "drop": 9, "add": 7, "wrap": 8, "unwrap": 5, "callee": 5,
         "slice": 4, "expr": 2, "cond": 5, "del": 4, "move": 3, "guard": 4, "insert": 4, "text": 6, "call": 3, "range": 3, "all": 4}
CHEAP = ("const", "cmp", "binop", "name", "logic", "drop", "add", "unwrap", "callee", "slice", "del", "move", "text", "range")
SWAPS = [("min", "max"), ("any", "all"), ("int", "float", "round", "str", "len", "abs", "sum", "ord", "chr", "bool"),
         ("sorted", "list", "set", "reversed", "tuple"), ("sum", "max", "min", "len"), ("ceil", "floor", "trunc", "sqrt", "round"),
         ("upper", "lower", "swapcase", "capitalize", "title"), ("isupper", "islower", "isalpha", "isdigit", "isalnum", "isspace"),
         ("startswith", "endswith"), ("append", "extend", "insert", "remove", "add"), ("find", "rfind", "index", "count"),
         ("strip", "lstrip", "rstrip"), ("keys", "values", "items"), ("split", "splitlines"), ("gcd", "lcm"), ("range", "enumerate"),
         ("ljust", "rjust"), ("bin", "hex", "oct"), ("filter", "map")]
for kind in (ast.expr, ast.stmt, ast.arg, ast.keyword):           # new nodes need no place in the text
    kind.lineno, kind.col_offset = 1, 0
CMPS = [ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq]
OPS = [ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow]


def E(src):
    return ast.parse(src, mode="eval").body


def C(v):
    return ast.Constant(value=v)


def N(v):
    return ast.Name(id=v, ctx=ast.Load())


def call(f, *args):
    return ast.Call(func=E(f) if isinstance(f, str) else f, args=list(args), keywords=[])


def meth(x, m, *args):
    return call(ast.Attribute(value=x, attr=m, ctx=ast.Load()), *args)


def sub(x, lo=None, hi=None, st=None):
    return ast.Subscript(value=x, slice=ast.Slice(lower=lo, upper=hi, step=st), ctx=ast.Load())


def bino(a, op, b):
    return ast.BinOp(left=a, op=op(), right=b)


def changes(tree, wants):
    """[(kind, weight, edits)] for each function of the tree; an edit sets one field of one node."""
    out = []
    for f in tree.body:
        if isinstance(f, ast.FunctionDef):
            one(f, wants, lambda kind, w, *edits: out.append((kind, w, list(edits))))
    return out


def one(f, wants, put):
    doc = next((d for g, d in docs(ast.Module(body=[f], type_ignores=[]))), "")
    prose = "\n".join(l for l in doc.split("\n") if not re.search(r"[\[({=>]\s*-?['\"\d]|[>=]\s*\S+$|^\s*-?\d+\s*$", l))
    skip = set()
    for n in ast.walk(f):
        if isinstance(n, ast.arg) and n.annotation:
            skip.update(map(id, ast.walk(n.annotation)))
        if isinstance(n, ast.FunctionDef) and n.returns:
            skip.update(map(id, ast.walk(n.returns)))
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant):
            skip.add(id(n.value))
            skip.add(id(n))
        if isinstance(n, ast.JoinedStr):
            skip.update(id(x) for x in ast.walk(n) if isinstance(x, (ast.Constant, ast.JoinedStr, ast.FormattedValue)))
    nodes = [n for n in ast.walk(f) if id(n) not in skip]
    params = [a.arg for a in f.args.args]
    loads = [n.id for n in nodes if isinstance(n, ast.Name)]
    stores = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local = list(dict.fromkeys([a.arg for n in nodes if isinstance(n, ast.arguments) for a in n.args] + [x for x in loads if x in stores]))
    ints = {n.value for n in nodes if isinstance(n, ast.Constant) and type(n.value) in (int, float)}
    docints = {int(x) for x in re.findall(r"(?<![\w.])\d{1,3}(?![\w.])", prose)}
    strs = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and len(n.value) < 60}
    flat = []
    for v in wants:
        flat += [v] if isinstance(v, str) else [x for x in v if isinstance(x, str)] if isinstance(v, (list, tuple)) else []
    docstrs = {x for x in re.findall(r"'([^'\n]{0,12})'|\"([^\"\n]{0,12})\"", doc) for x in x if x} | set(re.findall(r"\b[A-Z]{2,}\b", doc))
    pool = list(dict.fromkeys(list(strs) + [x for x in flat if len(x) < 15] + sorted(docstrs)))[:40]
    loopvars = set()

    slots = []                                                  # (node, field, index, expression)
    for n in nodes:
        for field, v in ast.iter_fields(n):
            if field in ("decorator_list", "annotation", "returns", "keywords", "targets", "target"):
                if field == "keywords":
                    continue
                if field in ("targets", "target"):
                    for t in (v if isinstance(v, list) else [v]):
                        if isinstance(t, ast.Name):
                            loopvars.add(t.id)
                continue
            if isinstance(v, ast.expr) and id(v) not in skip:
                slots.append((n, field, None, v))
            elif isinstance(v, list):
                slots += [(n, field, i, x) for i, x in enumerate(v) if isinstance(x, ast.expr) and id(x) not in skip]

    def at(slot, new):
        n, field, i, _ = slot
        if i is None:
            return (n, field, new)
        l = list(getattr(n, field))
        l[i] = new
        return (n, field, l)

    atoms = {}
    for _, _, _, e in slots:
        if isinstance(e, (ast.Subscript, ast.Call, ast.BinOp, ast.Attribute)) and not isinstance(getattr(e, "ctx", None), ast.Store):
            s = ast.unparse(e)
            if len(s) < 30:
                atoms.setdefault(s, e)
    atoms = list(atoms.values())[:14]
    small = list(dict.fromkeys([0, 1, 2, -1, 10] + sorted(x for x in ints | docints if isinstance(x, int))))[:10]

    atoms = copy.deepcopy(atoms)                                # copies: no node may come to hold itself
    values = [N(x) for x in local] + [a for a in atoms if not isinstance(a, ast.Attribute)]
    conds = []                                                  # conditions that may be missing
    for k, a in enumerate(values):
        for op in CMPS:
            for c in small[:6]:
                conds.append(ast.Compare(left=a, ops=[op()], comparators=[C(c)]))
            for b in values[k + 1:]:
                conds.append(ast.Compare(left=a, ops=[op()], comparators=[b]))
        for b in values[:8]:
            if b is not a:
                conds.append(ast.Compare(left=a, ops=[ast.NotIn()], comparators=[b]))
                conds.append(ast.Compare(left=a, ops=[ast.In()], comparators=[b]))
        for m in (2, 3, 10):
            for r in (0, 1):
                conds.append(ast.Compare(left=bino(a, ast.Mod, C(m)), ops=[ast.Eq()], comparators=[C(r)]))
        for s in pool[:8]:
            conds.append(ast.Compare(left=a, ops=[ast.Eq()], comparators=[C(s)]))
            conds.append(ast.Compare(left=a, ops=[ast.NotEq()], comparators=[C(s)]))
        conds.append(a)
        conds.append(ast.UnaryOp(op=ast.Not(), operand=a))
        for m in ("isupper", "islower", "isalpha", "isdigit", "isspace"):
            conds.append(meth(a, m))
        conds.append(ast.Compare(left=call("len", a), ops=[ast.Eq()], comparators=[C(0)]))
        conds.append(ast.Compare(left=call("len", a), ops=[ast.Gt()], comparators=[C(1)]))
    old = [e for _, _, _, e in slots if isinstance(e, ast.Compare)]
    conds = copy.deepcopy(old) + conds
    conds = conds[:900]

    def const(slot, e):
        v = e.value
        if isinstance(v, bool):
            put("const", 3, at(slot, C(not v)))
            return
        if v is None:
            for x in [True, False, 0, "", -1, 1] + pool[:6]:
                put("const", .4, at(slot, C(x)))
            put("const", .5, at(slot, E("[]")))
        elif isinstance(v, (int, float)):
            ws = {}
            for x, w in [(v + 1, 3), (v - 1, 3), (-v, 1.5), (0, 1), (1, 1), (2, 1), (-1, .7), (10, .5), (v * 2, .7), (v * 10, .5), (v + 2, .5), (v - 2, .5)] + [
                    (x, 1.5) for x in docints] + [(x, .7) for x in ints] + ([(v / 2, .4), (v / 10, .4), (v * 100, .2), (v / 100, .2)] if isinstance(v, float) else [(v // 2, .5), (v // 10, .4)]):
                if x != v or type(x) is not type(v):
                    ws[x] = max(ws.get(x, 0), w)
            for x, w in ws.items():
                put("const", w, at(slot, C(x)))
            for x in ("float('inf')", "float('-inf')"):
                put("const", .2, at(slot, E(x)))
            put("const", .3, at(slot, C(None)))
            for x in local:
                put("name", .3, at(slot, N(x)))
        elif isinstance(v, str):
            new = {}
            for x in pool:
                new[x] = 2
            for x in (v.title(), v.capitalize(), v.lower(), v.upper(), v.swapcase(), v[::-1], v.strip(), v + " ", " " + v):
                new.setdefault(x, .5 if len(v) > 3 else 1)
            for x in ("", " ", ",", ", ", "_", "-", "\n"):
                new.setdefault(x, .7)
            if len(v) < 60:
                for k in range(len(v)):
                    new.setdefault(v[:k] + v[k + 1:], .5)
                kind = "abcdefghijklmnopqrstuvwxyz" if v.islower() else "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if v.isupper() else "0123456789" if v.isdigit() else \
                    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if v.isalpha() else ".,;:!?-_ /+*()[]<>"
                for c in kind:
                    new.setdefault(v + c, .2)
                    if not v.isalpha():
                        new.setdefault(c + v, .2)
                if v.isalpha() and len(v) > 1:
                    new.setdefault(v + v.swapcase(), 3)
                    new.setdefault(v + "y", .7)
            new.pop(v, None)
            for x, w in new.items():
                put("text", w, at(slot, C(x)))

    tests = set()
    for n in nodes:
        if isinstance(n, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            tests.add((id(n), "test"))
        if isinstance(n, ast.comprehension):
            tests.add((id(n), "ifs"))
    for slot in slots:
        n, field, i, e = slot
        if isinstance(getattr(e, "ctx", None), (ast.Store, ast.Del)):
            continue
        callee = isinstance(n, ast.Call) and field == "func"
        if isinstance(e, ast.Constant):
            const(slot, e)
        if callee or isinstance(e, ast.Slice):
            name = e.id if isinstance(e, ast.Name) else e.attr if isinstance(e, ast.Attribute) else ""
            for group in SWAPS:
                if name in group:
                    for x in group:
                        if x != name:
                            if isinstance(e, ast.Name):
                                put("callee", 1, at(slot, E("math." + x) if x in ("ceil", "floor", "trunc", "sqrt") else N(x)))
                            else:
                                put("callee", 1, (e, "attr", x))
            if isinstance(e, ast.Name):
                for x in local:
                    if x != e.id:
                        put("name", .1, at(slot, N(x)))
            if isinstance(e, ast.Slice):
                for part in ("lower", "upper", "step"):
                    cur = getattr(e, part)
                    if cur is not None:
                        put("slice", 2, (e, part, None))
                    else:
                        for x in [C(1), C(-1), C(2), C(-2), C(3)] + [N(y) for y in local[:8]]:
                            put("slice", 1 if isinstance(x, ast.Constant) else .3, (e, part, x))
            continue
        if isinstance(e, ast.Name):
            for x in local:
                if x != e.id:
                    put("name", 1, at(slot, N(x)))
            for x in (0, 1):
                put("expr", .3, at(slot, C(x)))
        if isinstance(e, ast.Compare):
            for k, op in enumerate(e.ops):
                if type(op) in CMPS:
                    for new in CMPS:
                        if type(op) is not new:
                            near = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}[type(op)] is new
                            put("cmp", 2 if near else .3 if type(op) in (ast.Eq, ast.NotEq) else 1, (e, "ops", e.ops[:k] + [new()] + e.ops[k + 1:]))
                else:
                    new = {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}[type(op)]
                    put("cmp", 2, (e, "ops", e.ops[:k] + [new()] + e.ops[k + 1:]))
            if len(e.ops) == 1:
                put("cmp", .5, (e, "left", e.comparators[0]), (e, "comparators", [e.left]))
            else:
                put("drop", 1, at(slot, ast.Compare(left=e.left, ops=e.ops[:1], comparators=e.comparators[:1])))
                put("drop", 1, at(slot, ast.Compare(left=e.comparators[0], ops=e.ops[1:], comparators=e.comparators[1:])))
        if isinstance(e, ast.BinOp):
            for op in OPS + [ast.BitAnd, ast.BitOr, ast.BitXor]:
                if type(e.op) is not op:
                    put("binop", (1 if op in OPS[:5] else .4 if op in OPS else .04) * (.3 if isinstance(e.op, (ast.Mod, ast.Pow)) or isinstance(e.left, ast.Constant) and isinstance(e.right, ast.Constant) else 1), (e, "op", op()))
            put("drop", .2 if isinstance(e.left, ast.Constant) else 1.5, at(slot, e.left))
            put("drop", .2 if isinstance(e.right, ast.Constant) else 1, at(slot, e.right))
            put("binop", .1 if isinstance(e.left, ast.Constant) and isinstance(e.right, ast.Constant) or isinstance(e.op, ast.Mult) else .7, (e, "left", e.right), (e, "right", e.left))
            for a, b in ((e.left, e.right),):
                if isinstance(b, ast.BinOp):
                    put("binop", 2.5, at(slot, ast.BinOp(left=ast.BinOp(left=a, op=e.op, right=b.left), op=b.op, right=b.right)))
                if isinstance(a, ast.BinOp):
                    put("binop", 2.5, at(slot, ast.BinOp(left=a.left, op=a.op, right=ast.BinOp(left=a.right, op=e.op, right=b))))
        if isinstance(e, ast.BoolOp):
            put("logic", 2, (e, "op", ast.Or() if isinstance(e.op, ast.And) else ast.And()))
            for k in range(len(e.values)):
                left = e.values[:k] + e.values[k + 1:]
                put("drop", 1, at(slot, left[0] if len(left) == 1 else ast.BoolOp(op=e.op, values=left)))
        if isinstance(e, ast.UnaryOp):
            put("drop", 2, at(slot, e.operand))
        if isinstance(e, ast.IfExp):
            put("logic", 2, (e, "body", e.orelse), (e, "orelse", e.body))
            put("drop", 1, at(slot, e.body))
            put("drop", 1, at(slot, e.orelse))
        if isinstance(e, ast.Call):
            for a in e.args[:2]:
                if not isinstance(a, (ast.Lambda, ast.Starred)):
                    put("unwrap", 1, at(slot, a))
            if isinstance(e.func, ast.Attribute):
                put("unwrap", 1.5, at(slot, e.func.value))
            for k in range(len(e.args)):
                put("call", .7, (e, "args", e.args[:k] + e.args[k + 1:]))
                for j in range(k + 1, len(e.args)):
                    l = list(e.args)
                    l[k], l[j] = l[j], l[k]
                    put("call", 1, (e, "args", l))
            for k in range(len(e.keywords)):
                put("call", 1, (e, "keywords", e.keywords[:k] + e.keywords[k + 1:]))
                kv = e.keywords[k]
                if isinstance(kv.value, ast.Constant) and isinstance(kv.value.value, bool):
                    put("call", 2, (kv, "value", C(not kv.value.value)))
                elif isinstance(kv.value, ast.UnaryOp) and isinstance(kv.value.op, ast.Not):
                    put("call", 2, (kv, "value", kv.value.operand))
                else:
                    put("call", 1, (kv, "value", ast.UnaryOp(op=ast.Not(), operand=kv.value)))
            fn = getattr(e.func, "id", getattr(e.func, "attr", ""))
            have = {k.arg for k in e.keywords}
            if fn in ("sorted", "sort", "max", "min"):
                if fn[0] == "s" and "reverse" not in have:
                    put("call", 2, (e, "keywords", e.keywords + [ast.keyword(arg="reverse", value=C(True))]))
                if "key" not in have:
                    for s in ("len", "abs", "str", "lambda x: -x", "lambda x: x[0]", "lambda x: x[1]", "lambda x: x[-1]", "lambda x: (len(x), x)",
                              "lambda x: sum(map(int, str(x)))", "lambda x: (x[0], -x[1])", "str.lower", "int"):
                        put("call", .5, (e, "keywords", e.keywords + [ast.keyword(arg="key", value=E(s))]))
            for x in [C(0), C(1), C(2), C(" "), C("")] + [N(y) for y in local[:6]]:
                put("call", .2, (e, "args", e.args + [x]))
                put("call", .1, (e, "args", [x] + e.args))
            if fn == "range":
                a = e.args
                one_, two = C(1), C(2)
                plus = lambda x: bino(x, ast.Add, one_)
                minus = lambda x: bino(x, ast.Sub, one_)
                if len(a) == 1:
                    for l in ([one_, a[0]], [one_, plus(a[0])], [two, a[0]], [two, plus(a[0])], [a[0], C(0), C(-1)], [minus(a[0]), C(-1), C(-1)], [C(0), a[0], two]):
                        put("range", 1, (e, "args", l))
                if len(a) == 2:
                    for l in ([a[0], plus(a[1])], [plus(a[0]), a[1]], [a[0], a[1], two], [a[1], a[0], C(-1)], [a[1]], [plus(a[0]), plus(a[1])], [a[1], minus(a[0]), C(-1)], [minus(a[1]), minus(a[0]), C(-1)], [a[0], plus(a[1]), two]):
                        put("range", 1, (e, "args", l))
                if len(a) == 3:
                    put("range", 1, (e, "args", a[:2]))
        if isinstance(e, (ast.List, ast.Tuple, ast.Set)):
            for k in range(len(e.elts)):
                put("drop", 1 / len(e.elts), (e, "elts", e.elts[:k] + e.elts[k + 1:]))
                for j in range(k + 1, min(len(e.elts), k + 4)):
                    l = list(e.elts)
                    l[k], l[j] = l[j], l[k]
                    put("move", .7, (e, "elts", l))
            if len(e.elts) < 12:
                for x in [C(y) for y in small[:5]] + [N(y) for y in local[:6]] + ([C(y) for y in pool[:6]] if e.elts and all(isinstance(y, ast.Constant) and isinstance(y.value, str) for y in e.elts) else []):
                    put("insert", .3, (e, "elts", e.elts + [x]))
        if isinstance(e, ast.Subscript):
            put("drop", .7, at(slot, e.value))
        if isinstance(e, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            for cls in (ast.ListComp, ast.SetComp):
                if type(e) is not cls:
                    put("wrap", .4, at(slot, cls(elt=e.elt, generators=e.generators)))
        if (id(n), field) in tests:
            put("logic", 1, at(slot, ast.UnaryOp(op=ast.Not(), operand=e)))
            put("logic", .5, at(slot, C(True)))
            put("logic", .5, at(slot, C(False)))
            for c in conds:
                if c is not e:
                    put("cond", 1, at(slot, ast.BoolOp(op=ast.And(), values=[e, c])))
                    put("cond", 1, at(slot, ast.BoolOp(op=ast.Or(), values=[e, c])))
                    put("cond", .5, at(slot, c))
            continue
        if isinstance(n, ast.Expr) or isinstance(e, (ast.Lambda, ast.Starred)):
            continue
        if isinstance(n, ast.Attribute) and isinstance(e, ast.Constant) and isinstance(e.value, str):
            continue
        boolish = isinstance(e, (ast.Compare, ast.BoolOp)) or isinstance(e, ast.Constant) and isinstance(e.value, bool)
        if boolish or isinstance(n, ast.BoolOp) or isinstance(n, ast.Return):
            put("logic", .7, at(slot, ast.UnaryOp(op=ast.Not(), operand=e)))
        if boolish:
            if isinstance(n, ast.Return):
                for c in conds:
                    put("cond", .4, at(slot, ast.BoolOp(op=ast.And(), values=[e, c])))
                    put("cond", .4, at(slot, ast.BoolOp(op=ast.Or(), values=[e, c])))
            continue
        isconst = isinstance(e, ast.Constant)
        if not (isconst and isinstance(e.value, str)):
            if not (isconst and type(e.value) in (int, float)):
                for op, c, w in ((ast.Add, 1, 2), (ast.Sub, 1, 2), (ast.Mult, 2, .7), (ast.FloorDiv, 2, .7), (ast.Div, 2, .5), (ast.Mod, 2, .5), (ast.Mod, 10, .4),
                                 (ast.Pow, 2, .5), (ast.Mult, -1, .5), (ast.Add, 2, .4), (ast.Sub, 2, .4), (ast.Pow, 3, .2), (ast.Pow, .5, .2), (ast.FloorDiv, 10, .2)):
                    put("add", w, at(slot, bino(e, op, C(c))))
                put("add", .5, at(slot, ast.UnaryOp(op=ast.USub(), operand=e)))
                for s in ("abs", "sorted", "set", "len", "int", "str", "list", "sum", "max", "min", "round", "float", "tuple", "ord", "math.ceil", "math.floor"):
                    if not (isinstance(n, ast.Call) and getattr(n.func, "id", "") == s):
                        put("wrap", 4 if s == "abs" and isinstance(e, ast.BinOp) and isinstance(e.op, ast.Sub) else 1, at(slot, call(s, e)))
                for s in ("lower", "upper", "strip", "split", "swapcase", "copy", "capitalize", "isalpha", "isdigit", "keys", "values", "items"):
                    put("wrap", .5, at(slot, meth(e, s)))
                put("wrap", .7, at(slot, call("sorted", call("set", e))))
                put("wrap", .3, at(slot, call("len", call("set", e))))
                put("wrap", .5, at(slot, call("list", call("set", e))))
                put("wrap", .5, at(slot, meth(C(""), "join", e)))
                put("wrap", .5, at(slot, meth(C(" "), "join", e)))
                put("wrap", .5, at(slot, ast.List(elts=[e], ctx=ast.Load())))
                put("wrap", .5, at(slot, call("round", e, C(2))))
                for l, h, s, w in ((None, None, -1, 2), (1, None, None, 1), (None, -1, None, 1), (None, None, 2, .7), (1, None, 2, .4), (2, None, None, .4), (1, -1, None, .3), (None, -2, None, .3)):
                    put("slice", w, at(slot, sub(e, *[None if x is None else C(x) for x in (l, h, s)])))
                for k in (0, -1, 1):
                    put("slice", .5, at(slot, ast.Subscript(value=e, slice=C(k), ctx=ast.Load())))
                for x in local:
                    if not (isinstance(e, ast.Name) and e.id == x and False):
                        put("slice", .3, at(slot, ast.Subscript(value=e, slice=N(x), ctx=ast.Load())))
            for x in values[:14]:
                for op, w in ((ast.Add, .5), (ast.Sub, .5), (ast.Mult, .4), (ast.Mod, .2), (ast.FloorDiv, .15), (ast.Div, .15)):
                    put("add", w * (1 if isinstance(x, ast.Name) else .4), at(slot, bino(e, op, x)))
                    if op in (ast.Sub, ast.Add) and isinstance(x, ast.Name):
                        put("add", w * .5, at(slot, bino(x, op, e)))
            if not isconst:
                for s in pool[:12] + [" ", ",", "\n"]:
                    put("add", .15, at(slot, bino(e, ast.Add, C(s))))
                    put("add", .15, at(slot, bino(C(s), ast.Add, e)))
        for a in atoms:
            if a is not e:
                put("expr", 1, at(slot, a))
        if isinstance(n, ast.Return):
            for x in [True, False, None, 0, 1, -1] + pool[:8]:
                put("expr", .5, at(slot, C(x)))
            put("expr", .4, at(slot, E("[]")))

    # the same change everywhere
    byval = {}
    for n in nodes:
        if isinstance(n, ast.Constant) and not isinstance(n.value, bool) and n.value is not None:
            byval.setdefault((type(n.value), n.value), []).append(n)
    for (t, v), ns in byval.items():
        if len(ns) > 1:
            for x in ([v + 1, v - 1, 0, 1, 2, -v] + sorted(docints)) if t is not str else pool + [v.upper(), v.lower(), v.title()]:
                if x != v:
                    put("all", 1, *[(n, "value", x) for n in ns])
    sn = [n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for g in (str.upper, str.lower, str.title, str.capitalize):
        edits = [(n, "value", g(n.value)) for n in sn if g(n.value) != n.value]
        if len(edits) > 1:
            put("all", 3, *edits)
    for a in local:
        ns = [n for n in nodes if isinstance(n, ast.Name) and n.id == a and isinstance(n.ctx, ast.Load)]
        if len(ns) > 1:
            for b in local:
                if a != b:
                    put("all", .7, *[(n, "id", b) for n in ns])
                    both = [n for n in nodes if isinstance(n, ast.Name) and n.id == b and isinstance(n.ctx, ast.Load)]
                    if a < b:
                        put("all", .5, *([(n, "id", b) for n in ns] + [(n, "id", a) for n in both]))
    for op in CMPS:
        ns = [n for n in nodes if isinstance(n, ast.Compare) and len(n.ops) == 1 and type(n.ops[0]) is op]
        if len(ns) > 1:
            for new in CMPS:
                if new is not op:
                    put("all", .7, *[(n, "ops", [new()]) for n in ns])
    for op in OPS:
        ns = [n for n in nodes if isinstance(n, (ast.BinOp, ast.AugAssign)) and type(n.op) is op]
        if len(ns) > 1:
            for new in OPS:
                if new is not op:
                    put("all", .5, *[(n, "op", new()) for n in ns])

    # statements
    rets = [C(x) for x in (True, False, None, 0, 1, -1)] + [E("[]"), C("")] + [N(x) for x in local[:8]] + [C(x) for x in pool[:8]]
    simple = [s for n in nodes for fld in ("body", "orelse") for s in (getattr(n, fld, None) if isinstance(getattr(n, fld, None), list) else [])
              if isinstance(s, (ast.Assign, ast.AugAssign, ast.Return, ast.Break, ast.Continue)) or isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    steps = []
    for x in local:
        if x in stores:
            for op, c in ((ast.Add, 1), (ast.Sub, 1), (ast.FloorDiv, 2), (ast.Mult, 2), (ast.FloorDiv, 10)):
                steps.append((.6, ast.AugAssign(target=ast.Name(id=x, ctx=ast.Store()), op=op(), value=C(c))))
            for v in [0, 1, True, False, "", None]:
                steps.append((.3, ast.Assign(targets=[ast.Name(id=x, ctx=ast.Store())], value=C(v), lineno=1)))
            for y in values[:10]:
                steps.append((.3, ast.Assign(targets=[ast.Name(id=x, ctx=ast.Store())], value=y, lineno=1)))
                for op in (ast.Add, ast.Sub, ast.Mult):
                    steps.append((.2, ast.AugAssign(target=ast.Name(id=x, ctx=ast.Store()), op=op(), value=y)))
            steps.append((.3, ast.Assign(targets=[ast.Name(id=x, ctx=ast.Store())], value=E("[]"), lineno=1)))
            for y in values[:10]:
                steps.append((.4, ast.Expr(value=meth(N(x), "append", y))))
        for m in ("sort", "reverse", "pop"):
            steps.append((.4, ast.Expr(value=meth(N(x), m))))
        steps.append((.3, ast.Expr(value=meth(N(x), "pop", C(0)))))
        for s in (f"{x} = sorted({x})", f"{x} = {x}[::-1]", f"{x} = list({x})", f"{x} = {x}.lower()", f"{x} = {x}.upper()", f"{x} = str({x})",
                  f"{x} = abs({x})", f"{x} = set({x})", f"{x} = {x}.split()", f"{x} = {x}.strip()", f"{x} = {x}[1:]", f"{x} = sorted({x}, reverse=True)"):
            steps.append((.3, ast.parse(s).body[0]))
    guards = []
    for p in params[:4]:
        for s in (f"not {p}", f"len({p}) == 1", f"len({p}) < 2", f"len({p}) < 3", f"{p} < 0", f"{p} <= 0", f"{p} <= 1", f"{p} < 2", f"{p} == 0", f"{p} == 1", f"{p} == 2",
                  f"{p} == 3", f"{p} % 2 == 1", f"{p} % 2 == 0", f"{p} > 0", f"{p} is None", f"sum({p}) == 0", f"len({p}) == 0") + tuple(f"{p} {o} {q}" for q in params if q != p for o in ("<", ">", "==", "!=", "<=", ">=")):
            guards.append(E(s))
        for c in sorted(docints)[:5]:
            guards += [E(f"{p} {o} {c}") for o in ("==", "<", ">", "<=", ">=")]
        for s in pool[:5]:
            guards.append(ast.Compare(left=N(p), ops=[ast.Eq()], comparators=[C(s)]))
    loops = {id(n) for n in nodes if isinstance(n, (ast.For, ast.While))}
    inloop = {id(x) for n in nodes if isinstance(n, (ast.For, ast.While)) for x in ast.walk(n)}
    for n in nodes:
        if isinstance(n, (ast.IfExp, ast.Lambda)):
            continue
        for fld in ("body", "orelse"):
            b = getattr(n, fld, None)
            if not isinstance(b, list) or not b:
                continue
            lead = 0
            while n is f and lead < len(b) and (id(b[lead]) in skip or isinstance(b[lead], (ast.Import, ast.ImportFrom))):
                lead += 1
            for k in range(lead, len(b)):
                s = b[k]
                rest = b[:k] + b[k + 1:]
                put("del", 1, (n, fld, rest or [ast.Pass()]))
                if k + 1 < len(b):
                    put("move", 1, (n, fld, b[:k] + [b[k + 1], s] + b[k + 2:]))
                if isinstance(s, (ast.If, ast.For, ast.While)) and s.body:
                    if isinstance(s, ast.If):
                        put("del", .8, (n, fld, b[:k] + s.body + b[k + 1:]))
                        if s.orelse:
                            put("del", .8, (n, fld, b[:k] + s.orelse + b[k + 1:]))
                            put("logic", 1, (s, "body", s.orelse), (s, "orelse", s.body))
                            put("del", .8, (s, "orelse", []))
                            put("move", .8, (s, "orelse", []), (n, fld, b[:k + 1] + s.orelse + b[k + 1:]))
                        else:
                            for r in simple:
                                put("insert", 1, (s, "orelse", [r]))
                            for r in rets[:10]:
                                put("insert", .4, (s, "orelse", [ast.Return(value=r)]))
                            for w, r in steps:
                                put("insert", w * .7, (s, "orelse", [r]))
                            if k + 1 < len(b):
                                put("move", 1, (s, "orelse", b[k + 1:]), (n, fld, b[:k + 1]))
                                put("move", 1, (s, "orelse", [b[k + 1]]), (n, fld, b[:k + 1] + b[k + 2:]))
                        put("move", .4, (n, fld, b[:k] + [ast.While(test=s.test, body=s.body, orelse=[])] + b[k + 1:]))
                    if isinstance(s, ast.While):
                        put("move", .7, (n, fld, b[:k] + [ast.If(test=s.test, body=s.body, orelse=[])] + b[k + 1:]))
                    inner = s.body
                    if len(inner) > 1:
                        put("move", 1.5, (s, "body", inner[:-1]), (n, fld, b[:k + 1] + inner[-1:] + b[k + 1:]))
                        put("move", 1, (s, "body", inner[1:]), (n, fld, b[:k] + inner[:1] + b[k:]))
                    if s.orelse and len(s.orelse) > 1:
                        put("move", 1, (s, "orelse", s.orelse[:-1]), (n, fld, b[:k + 1] + s.orelse[-1:] + b[k + 1:]))
                    if k + 1 < len(b):
                        put("move", 1.5, (s, "body", inner + [b[k + 1]]), (n, fld, b[:k + 1] + b[k + 2:] ))
                    if k > lead:
                        put("move", 1, (s, "body", [b[k - 1]] + inner), (n, fld, b[:k - 1] + b[k:]))
                    if isinstance(s, ast.For) and isinstance(s.target, ast.Tuple):
                        put("move", .7, (s.target, "elts", s.target.elts[::-1]))
                if isinstance(s, ast.AugAssign):
                    for op in OPS:
                        if type(s.op) is not op:
                            put("binop", 1, (s, "op", op()))
                    put("move", .7, (n, fld, b[:k] + [ast.Assign(targets=[s.target], value=s.value, lineno=1)] + b[k + 1:]))
                    for x in local:
                        if x in stores and isinstance(s.target, ast.Name) and x != s.target.id:
                            put("name", .7, (s, "target", ast.Name(id=x, ctx=ast.Store())))
                if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
                    for op in (ast.Add, ast.Sub, ast.Mult):
                        put("binop", .5, (n, fld, b[:k] + [ast.AugAssign(target=s.targets[0], op=op(), value=s.value)] + b[k + 1:]))
                    for x in local:
                        if x != s.targets[0].id:
                            put("name", .5, (s, "targets", [ast.Name(id=x, ctx=ast.Store())]))
                if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Tuple) and isinstance(s.value, ast.Tuple):
                    put("move", 1, (s.value, "elts", s.value.elts[::-1]))
                for old_, news in ((ast.Break, (ast.Continue, ast.Pass)), (ast.Continue, (ast.Break, ast.Pass)), (ast.Pass, (ast.Break, ast.Continue))):
                    if isinstance(s, old_):
                        for new in news:
                            put("callee", 1, (n, fld, b[:k] + [new()] + b[k + 1:]))
            for k in range(lead, len(b) + 1):
                grow = lambda *s: (n, fld, b[:k] + list(s) + b[k:])
                for s in simple:
                    put("insert", .7, grow(s))
                for w, s in steps:
                    put("insert", w, grow(s))
                if id(n) in inloop:
                    ends = [ast.Break()] + ([ast.Continue()] if k < len(b) else [])
                    for s in ends:
                        put("insert", .5, grow(s))
                    if id(n) in loops:
                        for c in conds[:400]:
                            for s in ends:
                                put("guard", .1, grow(ast.If(test=c, body=[s], orelse=[])))
                            for r in rets[:2]:
                                put("guard", .07, grow(ast.If(test=c, body=[ast.Return(value=r)], orelse=[])))
                if k == len(b) and not (b and isinstance(b[-1], ast.Return)):
                    for r in rets:
                        put("insert", .7, grow(ast.Return(value=r)))
                if n is f and (k == lead or k == len(b) - 1):
                    for c in guards:
                        for r in rets[:18]:
                            put("guard", .6 if k == lead else .3, grow(ast.If(test=c, body=[ast.Return(value=r)], orelse=[])))
    for n in nodes:
        if isinstance(n, ast.comprehension):
            for k in range(len(n.ifs)):
                put("drop", 1, (n, "ifs", n.ifs[:k] + n.ifs[k + 1:]))
            for c in conds:
                put("cond", .6, (n, "ifs", n.ifs + [c]))


# ---- the search

def priced(raw):
    """[(price, edits)], the likeliest first: each kind's share is divided among its members."""
    total = {}
    for kind, w, _ in raw:
        total[kind] = total.get(kind, 0) + w
    for kind in total:
        total[kind] = max(total[kind], 20)
    return sorted(((PRIOR[kind] * w / total[kind] / 130, kind, edits) for kind, w, edits in raw), key=lambda x: -x[0])


def apply(edits):
    olds = [(n, f, getattr(n, f)) for n, f, _ in edits]
    for n, f, v in edits:
        setattr(n, f, v)
    return olds


def source(tree, edits):
    olds = apply(edits)
    try:
        return ast.unparse(ast.fix_missing_locations(tree))
    finally:
        for n, f, v in reversed(olds):
            setattr(n, f, v)


def unused(tree):
    count = 0
    for f in tree.body:
        if isinstance(f, ast.FunctionDef):
            load = {n.id for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            names = {a.arg for a in f.args.args} | {n.id for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            count += len({x for x in names if not x.startswith("_")} - load)
    return count


WORDS = [(r"absolute|closer|distance|difference", {"abs"}), (r"unique|distinct|duplicate|without repeat", {"set"}),
         (r"sorted|ascending|order|alphabet|increasing", {"sorted", "sort"}), (r"descending|decreasing|reverse|backward", {"reverse", "reversed", "True", "-1"}),
         (r"lower ?case|case.insensitive|ignor\w+ case|case does not", {"lower", "islower"}), (r"upper ?case|capital", {"upper", "isupper"}),
         (r"largest|greatest|maxim|biggest|longest|highest|larger", {"max", ">"}), (r"smallest|minim|lowest|shortest|smaller", {"min", "<"}),
         (r"round", {"round"}), (r"product|multipl", {"*", "*="}), (r"\bsum\b|total|\badd", {"+", "+=", "sum"}), (r"differen|subtract|minus|remain", {"-", "-="}),
         (r"or equal|at least|at most|inclusive|\bup to\b|no more than|not less", {"<=", ">="}), (r"less than|smaller than|below|fewer", {"<"}),
         (r"greater than|more than|above|larger than|exceed|bigger", {">"}), (r"\bboth\b|\band\b all", {"and"}), (r"either|\bor\b", {"or"}),
         (r"\bodd\b|\beven\b|divi|multiple", {"%", "2"}), (r"digit", {"isdigit", "str", "10"}), (r"letter|alphabet", {"isalpha"}), (r"space", {"' '"}),
         (r"\bnot\b|unless|without|except|exclud", {"not", "!="}), (r"average|mean|half|divided", {"/", "2"}), (r"length", {"len"}),
         (r"ascii|unicode|code", {"ord", "chr"}), (r"empty", {"[]", "''", "not", "len"}), (r"negative", {"-", "<", "abs", "-1"}), (r"positive", {">", "abs"}),
         (r"integer|whole", {"int", "//"}), (r"square", {"2", "**"}), (r"cube", {"3", "**"})]
TOKEN = re.compile(r"""'[^'\n]*'|\[\]|[A-Za-z_]\w*|-?\d+|[-+*/%<>=!&|^]+""")


def told(doc, old, new):
    """How much the docstring speaks for what is new in a text."""
    a, b = TOKEN.findall(old), TOKEN.findall(new)
    fresh = {t for t in set(b) if b.count(t) > a.count(t)}
    gone = {t for t in set(a) if a.count(t) > b.count(t)}
    score = 1.0
    for pattern, tokens in WORDS:
        hit = re.search(pattern, doc, re.I)
        if hit and tokens & fresh and not tokens & gone:
            score = max(score, 2.0)
        if hit and tokens & gone and not tokens & fresh:
            score *= .6
    return score


def pick(tree, jobs, results, n, first):
    """The source of the likeliest candidate of those that pass all: alike in what they do, they are counted together."""
    base, bad0 = unused(tree), first[2]
    doc = "\n".join(d for _, d in docs(tree))
    old = ast.unparse(tree)
    groups = {}
    good = [i for i in sorted(results) if results[i][0] >= n and (results[i][1].endswith(".0") or results[i][1] != first[1])]
    for i in good[:1500]:
        _, mark, bad, _ = results[i]
        p, kind, edits = jobs[i]
        olds = apply(edits)
        u = unused(tree)
        try:
            text = ast.unparse(tree)
        except Exception:
            text = old
        for nd, f, v in reversed(olds):
            setattr(nd, f, v)
        p *= told(doc, old, text)
        p *= 4 if u < base else .3 if u > base else 1
        p *= .4 if bad > bad0 + 1 else 1
        if mark.split(".")[0] == "1" and first[1].split(".")[0] != "1":
            p *= .2
        g = groups.setdefault(mark or str(i), [0, 0, None])
        g[0] += p
        if p > g[1]:
            g[1], g[2] = p, i
    if not groups:
        return None
    best = max(groups.values(), key=lambda g: g[1] + .3 * (g[0] - g[1]))
    return source(tree, jobs[best[2]][2])


def finish_imports(text):
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    have = {a.asname or a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    defined = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)} | {a.arg for n in ast.walk(tree) if isinstance(n, ast.arguments) for a in n.args}
    top = "".join(f"import {m}\n" for m in MODULES if m in used - have - defined)
    top += "".join(f"from {m} import {x}\n" for x, m in LIB.items() if x in used - have - defined)
    return top + text


def main():
    reply = sys.stdin.read()
    files = sorted(p for p in Path.cwd().glob("*.py") if p.name != "node.py" and not p.name.startswith("."))
    target = files[0] if len(files) == 1 else Path("solution.py")
    try:
        state = json.loads(STATE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        state = {"first": target.read_text(encoding="utf-8") if target.exists() else "", "turn": 0, "done": False, "tried": [], "best": [-1, ""]}
    state["turn"] += 1

    def close(text, done, say):
        if text is not None:
            target.write_text(finish_imports(text).rstrip("\n") + "\n", encoding="utf-8")
        state["done"] = done
        STATE.write_text(json.dumps(state), encoding="utf-8")
        print(say)
        sys.exit(0)

    blocks = re.findall(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL)
    mine = max(blocks, key=len) if blocks else reply if re.search(r"^def ", reply, re.M) else ""
    try:
        tree = ast.parse(state["first"])
    except (SyntaxError, ValueError):
        close(mine or None, bool(mine) or state["turn"] >= 4, f"{target.name} is written")
    try:
        new = ast.parse(mine) if mine else None
        if new and not any(isinstance(x, ast.FunctionDef) for x in new.body):
            new = None
    except (SyntaxError, ValueError):
        new = None
    pairs = examples(tree)
    tests = []
    for c, w in pairs:
        try:
            tests.append((compile(c, "e", "eval"), eval(w, {}), c, w))
        except Exception:
            pass
    probe = [compile(p, "p", "eval") for p in probes([(t[2], t[3]) for t in tests])]
    short = [t[:2] for t in tests]
    wants = [t[1] for t in tests]
    n = len(tests)
    end = START + LIMIT
    jobs0 = [(tree, [])] + ([(new, [])] if new else [])
    res = run_all(jobs0, short, probe, min(end, time.time() + 4), full=True)
    first = list(res.get(0, (0, "", 0, [0, []])))
    got = res.get(1)
    PACE[0] = min(.3, max(.004, 4 * first[3][0], 4 * (got[3][0] if got and got[0] == n else 0)))
    kinds = first[3][1]
    if len(kinds) == n > 1 and len({k for k in kinds if k}) == 1:       # a misread example: another kind of result
        odd = [k for k in range(n) if kinds[k] and sort_of(wants[k]) not in ("", kinds[k])]
        if odd and len(odd) < n and first[0] < n - len(odd):
            short, wants, tests = ([x for k, x in enumerate(l) if k not in odd] for l in (short, wants, tests))
            n = len(tests)
            res = run_all(jobs0, short, probe, min(end, time.time() + 3), full=True)
            first, got = list(res.get(0, (0, "", 0, [0, []]))), res.get(1)
    code_of = lambda t: "\n".join(ast.unparse(s) for x in t.body if isinstance(x, ast.FunctionDef) for s in x.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)))
    differs = bool(new) and code_of(new) != code_of(tree)
    if got and differs and got[0] == n and (first[0] < n or not probe or got[1] != first[1]) and (n or state["turn"] > 0):
        close(mine, True, f"{target.name} is written")
    if got and differs and got[0] > max(first[0], state["best"][0]):
        state["best"] = [got[0], mine]

    def search(base, start_mark, until):
        """Tries one change, then two; returns a source or None."""
        jobs = priced(changes(base, wants))
        results = run_all([(base, j[2]) for j in jobs], short, probe, until)
        text = pick(base, jobs, results, n, start_mark)
        if text:
            return text
        part = sorted((i for i in results if results[i][0] > start_mark[0]), key=lambda i: (-results[i][0], -jobs[i][0]))
        if part and results[part[0]][0] > state["best"][0]:
            top = results[part[0]][0]
            state["best"] = [top, pick(base, jobs, {i: v for i, v in results.items() if v[0] == top}, top, [0, "?", 99])]
        seen = set()
        for i in part[:12]:                                         # on top of what mends some examples
            if time.time() > until - .5:
                return None
            text = source(base, jobs[i][2])
            if text in seen:
                continue
            seen.add(text)
            t2 = ast.parse(text)
            j2 = [j for j in priced(changes(t2, wants)) if j[1] not in ("cond", "guard")]
            r2 = run_all([(t2, j[2]) for j in j2], short, probe, min(until, time.time() + 3))
            text = pick(t2, j2, r2, n, start_mark)
            if text:
                return text
        cheap = [j for j in jobs if j[1] in CHEAP][:400]
        two = sorted(((a[0] * b[0], x, y) for x, a in enumerate(cheap) for y, b in enumerate(cheap[:x])), key=lambda t: -t[0])[:60000]
        ok = []
        for p, x, y in two:
            fields = {(id(nd), f) for nd, f, _ in cheap[x][2]}
            if not any((id(nd), f) in fields for nd, f, _ in cheap[y][2]):
                ok.append((p, "two", cheap[x][2] + cheap[y][2]))
        if time.time() < until - .5:
            r3 = run_all([(base, j[2]) for j in ok], short, probe, until)
            return pick(base, ok, r3, n, start_mark)
        return None

    again = "Write the whole function anew from its docstring, in another way, in one ```python block."
    if n and first[0] < n:
        text = None
        if state["turn"] == 1:
            text = search(tree, first, end)
        elif differs and code_of(new) not in state["tried"] and got:
            state["tried"].append(code_of(new))
            text = search(new, got, end)
        if text:
            close(text, True, f"{target.name} is written")
        if state["turn"] >= 4:
            close(state["best"][1] or None, True, f"{target.name} is written")
        c, w = tests[0][2:4]
        close(state["best"][1] or (mine if differs else None), False, f"The file is still wrong: {c} must give {w}. " + again)
    if state["turn"] >= 3:                                          # the examples do not show the fault
        jobs = priced(changes(tree, wants))
        jobs = [j for j in jobs if j[1] not in ("cond", "guard", "insert", "expr")]
        results = run_all([(tree, j[2]) for j in jobs], short, probe, end)
        text = pick(tree, jobs, results, n, first) if results else None
        close(text or (mine if differs else None), True, f"{target.name} is written")
    close(None, False, "That is the faulty function again, unchanged in what it does. Look for the wrong operator, value, name or missing step. " + again)


if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
main()
