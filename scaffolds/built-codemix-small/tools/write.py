#!/usr/bin/env python3
"""Takes a reply with a ```python block on standard input, adds imports that it lacks, runs the docstring's examples,
searches small repairs of it and of the code given, keeps the version that does best in solution.py, and says what
still fails."""

import ast
import copy
import difflib
import io
import json
import math
import os
import random
import re
import resource
import select
import signal
import sys
import time
import warnings
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
warnings.simplefilter("ignore")
START = time.time()
STATE = Path(".recreate/checked.json")
BLOCK = r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)"
KNOWN = {**dict.fromkeys("List Dict Tuple Set Optional Any Union Callable Iterable".split(), "from typing import *"),
         **dict.fromkeys("Counter defaultdict deque OrderedDict".split(), "from collections import *"),
         **dict.fromkeys("reduce lru_cache cmp_to_key".split(), "from functools import *"),
         **dict.fromkeys("combinations permutations product accumulate groupby".split(), "from itertools import *"),
         **dict.fromkeys("sqrt ceil floor gcd factorial".split(), "from math import *"),
         **{m: f"import {m}" for m in "math re string itertools functools collections heapq bisect random sys "
            "hashlib operator copy statistics fractions datetime json".split()}}


def parse(text):
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def literal(text):
    """The value that text begins with, and the rest; None where there is none."""
    text = text.lstrip(" \t")
    m = re.match(r"[-+]?\d[\d_]*(\.\d+)?(e[-+]?\d+)?|True|False|None|true|false", text)
    end = m.end() if m else 0
    if not m and text[:1] and text[0] in "[({'\"":
        for i in range(2, min(len(text), 1500) + 1):
            if text[i - 1] in "])}'\"":
                try:
                    ast.literal_eval(text[:i])
                    end = i
                    break
                except (SyntaxError, ValueError, TypeError, MemoryError):
                    pass
    if not end:
        return None
    word = text[:end]
    more = re.match(r"[\d\s.+*/()-]+=\s*(-?[\d.]*\d)", text) if m else None
    if more:
        return ast.literal_eval(more[1]), text[more.end():]
    if m and re.match(r"\w", text[end:end + 1]):
        return None
    value = {"true": True, "false": False}.get(word, 0) if word in ("true", "false") else ast.literal_eval(word)
    return value, text[end:]


def call_end(text, at):
    for i in range(at, min(len(text), at + 1500)):
        if text[i] == ")" and parse(text[at:i + 1].strip()):
            return i + 1
    return None


def examples(doc, name, params):
    found = []
    for m in re.finditer(r"(?<![\w.])" + re.escape(name) + r"\(", doc):
        end = call_end(doc, m.start())
        if end is None:
            continue
        call = doc[m.start():end]
        try:
            ok = all(ast.literal_eval(a) is not ... for a in ast.parse(call, mode="eval").body.args)
        except (SyntaxError, ValueError, AttributeError):
            ok = False
        rest = doc[end:]
        sep = re.match(r"[ \t]*\n[ \t]*(?=\S)|\s*(?:#\s*)?(?:==+>?|=+>|-+>|➞|→|=|:|#|(?:should |must |will )?"
                       r"(?:returns?|be|is|gives?|equals?|evaluates to))(?:\s*(?:to|be|is|return|returns|the|list)\b)*"
                       r"[ \t]*[:>]?\s*", rest)
        value = literal(rest[sep.end():]) if sep and ok else None
        if value:
            found.append((" ".join(call.split("\n")), value[0]))
    if found or not params:
        return found
    last = 0
    for m in re.finditer(r"(?:outputs?|results?|returns?|answer|\bbe|➞|->|=>)\s*(?:should be|is|will be|:|=)*\s*", doc, re.I):
        value = literal(doc[m.end():])
        if not value:
            continue
        part, args = doc[last:m.start()], []
        i = 0
        while True:
            k = re.compile(r"(?<![<>!=])[=:]\s*|\bfor\s+|\binput\s+", re.I).search(part, i)
            if not k:
                break
            got = literal(part[k.end():])
            i = len(part) - len(got[1]) if got else k.end()
            if got:
                args.append(got[0])
        args = args[-len(params):]
        if len(args) == len(params):
            found.append((f"{name}({', '.join(map(repr, args))})", value[0]))
        last = len(doc) - len(value[1])
    return found


def same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        try:
            return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
        except TypeError:
            return False
    if type(a) is type(b) and isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def same_text(outcome, want):
    if outcome[0] != "is":
        return False
    try:
        return same(ast.literal_eval(outcome[1]), want)
    except (SyntaxError, ValueError):
        return outcome[1] == repr(want)


class Late(BaseException):
    pass


def late(*_):
    raise Late()


def outcomes(code, calls, seconds):
    """What each call gives: ("is", value's text, value) or ("raised", message, None)."""
    out = []
    signal.signal(signal.SIGALRM, late)
    space = {"__name__": "solution"}
    for call in [None] + calls:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            if call is None:
                exec(code, space)
                continue
            value = eval(call, space)
            out.append(("is", repr(value)[:2000], value))
        except Late:
            out.append(("raised", "no end (it runs for ever)", None))
        except BaseException as e:
            out.append(("raised", f"{type(e).__name__}: {e}"[:200], None))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if call is None or out[-1][1].startswith("no end"):
            break
    return out + [("raised", "it cannot be run: " + (out[-1][1] if out else "?"), None)] * (len(calls) - len(out))


def made(source, how):
    """A source, or a change (tree, owner, field, value) of one, compiled or as text."""
    if isinstance(source, str):
        return how(source)
    tree, owner, field, value = source
    old = getattr(owner, field)
    setattr(owner, field, value)
    try:
        return how(ast.fix_missing_locations(tree))
    finally:
        setattr(owner, field, old)


def compiled(source):
    return compile(source, "solution.py", "exec")


def run_all(sources, calls, seconds, until, wants=None):
    """For each source, or change of a tree, its outcomes (with `wants`: how many are right); None where time ran out."""
    got = [None] * len(sources)
    n = max(1, min(4, os.cpu_count() or 1, len(sources)))
    jobs = {}

    def begin(todo):
        if not todo:
            return
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(r)
                null = os.open(os.devnull, os.O_RDWR)
                for k in (0, 1, 2):
                    os.dup2(null, k)
                sys.stdin, sys.stdout, sys.stderr = io.StringIO(), io.StringIO(), io.StringIO()
                resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, 1500 << 20))
                sys.setrecursionlimit(3000)
                asked = [compile(c, "call", "eval") for c in calls]
                for i in todo:
                    try:
                        code = made(sources[i], compiled)
                        res = outcomes(code, asked, seconds)
                        if wants is not None:
                            res = sum(k == "is" and same(v, x) for (k, _, v), x in zip(res, wants))
                        else:
                            res = [x[:2] for x in res]
                    except BaseException as e:
                        res = 0 if wants is not None else [("raised", f"{type(e).__name__}: {e}"[:200])] * len(calls)
                    os.write(w, (json.dumps([i, res]) + "\n").encode())
            finally:
                os._exit(0)
        os.close(w)
        jobs[r] = [pid, todo, b"", time.time()]

    for k in range(n):
        begin(list(range(k, len(sources), n)))
    while jobs:
        ready = select.select(list(jobs), [], [], 0.2)[0]
        for r in list(jobs):
            job = jobs[r]
            closed = False
            if r in ready:
                data = os.read(r, 1 << 16)
                closed = not data
                job[2] += data
                job[3] = time.time()
                *lines, job[2] = job[2].split(b"\n")
                for line in lines:
                    i, res = json.loads(line)
                    got[i] = res
                    job[1] = job[1][job[1].index(i) + 1:]
            stuck = time.time() - job[3] > seconds * (len(calls) + 1) + 2
            if closed or stuck or time.time() > until:
                try:
                    os.kill(job[0], signal.SIGKILL)
                except OSError:
                    pass
                os.waitpid(job[0], 0)
                os.close(r)
                del jobs[r]
                if (stuck or closed) and time.time() < until:
                    begin(job[1][1:])
    return got


COMPARE = [ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq]
BINARY = [ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Mod, ast.Pow]
TWINS = ["min max", "any all", "upper lower swapcase", "isupper islower", "isalpha isdigit isalnum", "floor ceil",
         "append extend", "startswith endswith", "int round float", "sum len max", "add discard", "find rfind index",
         "lstrip rstrip strip", "keys values items", "union intersection difference", "str int", "list set sorted", "ord chr"]


def changes(node, pool):
    """Expressions to try in the place of one, the likeliest first."""
    new = []
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            group = COMPARE if type(op) in COMPARE else [ast.In, ast.NotIn] if isinstance(op, (ast.In, ast.NotIn)) else [ast.Is, ast.IsNot]
            new += [ast.Compare(node.left, node.ops[:i] + [o()] + node.ops[i + 1:], node.comparators) for o in group if o is not type(op)]
    if isinstance(node, ast.BinOp):
        new += [ast.BinOp(node.left, o(), node.right) for o in BINARY if not isinstance(node.op, o)]
        new += [node.left, node.right, ast.BinOp(node.right, node.op, node.left)]
    if isinstance(node, ast.BoolOp):
        new.append(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
        new += [ast.BoolOp(node.op, node.values[:i] + node.values[i + 1:]) if len(node.values) > 2 else node.values[1 - i]
                for i in range(len(node.values))]
    if isinstance(node, ast.UnaryOp):
        new.append(node.operand)
    if isinstance(node, ast.Constant):
        v = node.value
        if isinstance(v, bool):
            new.append(ast.Constant(not v))
        elif isinstance(v, (int, float)):
            new += [ast.Constant(x) for x in dict.fromkeys([v + 1, v - 1, 0, 1, 2, -v, v * 10, v / 10 if v % 10 else v // 10]) if x != v]
        if isinstance(v, str) and v != v.strip():
            new += [ast.Constant(v.lstrip()), ast.Constant(v.rstrip()), ast.Constant(v.strip())]
        new += [c for c in pool["constants"] if type(c.value) is type(v) and c.value != v]
    if isinstance(node, ast.Name):
        others = [ast.Name(n, ast.Load()) for n in pool["names"] if n != node.id]
        new += others
        for o in others:
            new += [ast.Subscript(node, s, ast.Load()) for s in (ast.Slice(o, None, None), ast.Slice(None, o, None), o)]
    if isinstance(node, ast.Call):
        f = node.func
        word = f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else ""
        for twin in {t for g in TWINS if word in g.split() for t in g.split() if t != word}:
            other = ast.Name(twin, ast.Load()) if isinstance(f, ast.Name) else ast.Attribute(f.value, twin, ast.Load())
            new.append(ast.Call(other, node.args, node.keywords))
        new += node.args[:2] + ([f.value] if isinstance(f, ast.Attribute) else [])
        new += [ast.Call(f, node.args[:i] + node.args[i + 1:], node.keywords) for i in range(len(node.args))]
        if len(node.args) == 2:
            new.append(ast.Call(f, node.args[::-1], node.keywords))
        if word == "range":
            new.append(ast.Call(f, (node.args if len(node.args) > 1 else [ast.Constant(0)] + node.args)[:2] + [ast.Constant(2)], []))
        new += [ast.Call(f, node.args, node.keywords[:i] + node.keywords[i + 1:]) for i in range(len(node.keywords))]
        if word in ("sorted", "sort") and not node.keywords:
            new.append(ast.Call(f, node.args, [ast.keyword("reverse", ast.Constant(True))]))
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Slice):
            s, one, minus = node.slice, ast.Constant(1), ast.UnaryOp(ast.USub(), ast.Constant(1))
            forms = [(s.lower, s.upper, minus), (None, None, minus), (s.lower, s.upper, None), (None, s.upper, s.step), (s.lower, None, s.step),
                     (one, s.upper, s.step), (s.lower, minus, s.step), (s.upper, s.lower, s.step)]
            new += [ast.Subscript(node.value, ast.Slice(*f), ast.Load()) for f in forms]
        new.append(node.value)
    if isinstance(node, ast.IfExp):
        new += [ast.IfExp(node.test, node.orelse, node.body), node.body, node.orelse]
    if isinstance(node, ast.ListComp) and node.generators[0].ifs:
        new.append(ast.ListComp(node.elt, [ast.comprehension(g.target, g.iter, [], 0) for g in node.generators]))
    if not isinstance(node, (ast.Constant, ast.Slice, ast.Starred, ast.JoinedStr, ast.FormattedValue)):
        load = ast.Load()
        new += [ast.UnaryOp(ast.Not(), node)] + [ast.BinOp(node, o(), ast.Constant(1)) for o in (ast.Add, ast.Sub)]
        new += [ast.Call(ast.Name(w, load), [node], []) for w in ("abs", "len", "set", "sorted", "int", "str", "list", "round")]
        new.append(ast.Subscript(node, ast.Slice(None, None, ast.UnaryOp(ast.USub(), ast.Constant(1))), load))
        new += pool["expressions"]
    return [n for n in new if ast.dump(n) != ast.dump(node)]


def mutants(tree, name, most=99):
    """All small changes, the likeliest first, as (tree, owner, field, value)."""
    body = [n for d in tree.body if getattr(d, "name", "") == name for n in ast.walk(d) if isinstance(n, ast.FunctionDef)]
    names, constants, wholes = {}, {}, {}
    for f in body:
        names.update({a.arg: 1 for a in f.args.args})
        for n in (x for s in f.body for x in ast.walk(s)):
            if isinstance(n, ast.Name):
                names[n.id] = 1
            elif isinstance(n, ast.Constant) and len(str(n.value)) < 30:
                constants[repr(n.value)] = n
            elif isinstance(n, (ast.Call, ast.BinOp, ast.Subscript, ast.Compare)) and len(ast.dump(n)) < 400:
                wholes[ast.dump(n)] = copy.deepcopy(n)
    pool = {"names": list(names), "constants": list(constants.values()), "expressions": list(wholes.values())}
    todo = []
    for f in body:
        for n in (x for s in f.body for x in ast.walk(s)):
            if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant):
                continue
            for key, value in ast.iter_fields(n):
                if key in ("annotation", "returns", "targets", "target", "func"):
                    continue
                for i, v in enumerate(value) if isinstance(value, list) else [(None, value)]:
                    if isinstance(v, ast.expr) and not isinstance(getattr(v, "ctx", None), (ast.Store, ast.Del)):
                        todo += [(r, n, key, i, c) for r, c in enumerate(changes(v, pool))]
            if isinstance(n, ast.AugAssign):
                todo += [(r, n, "op", None, o()) for r, o in enumerate(BINARY) if not isinstance(n.op, o)]
    for f in body:
        lines = [s for n in ast.walk(f) for k in ("body", "orelse") for s in (getattr(n, k, None) or []) if isinstance(getattr(n, k), list)]
        donors = [s for s in lines if isinstance(s, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr, ast.Break, ast.Continue))
                  and not isinstance(getattr(s, "value", None), ast.Constant)] + [ast.Break(), ast.Continue()]
        for n in ast.walk(f):
            for k in ("body", "orelse"):
                block = getattr(n, k, None)
                if not isinstance(block, list):
                    continue
                for i, s in enumerate(block):
                    rest = block[:i] + block[i + 1:]
                    todo.append((3, n, k, None, rest or [ast.Pass()]))
                    if isinstance(s, ast.If) and s.orelse:
                        todo.append((1, n, k, None, block[:i] + [ast.If(s.test, s.orelse, s.body)] + block[i + 1:]))
                    if isinstance(s, (ast.If, ast.For, ast.While)):
                        todo.append((6, n, k, None, block[:i] + s.body + block[i + 1:]))
                        if len(s.body) > 1:          # its last line out of the block
                            out = copy.copy(s)
                            out.body = s.body[:-1]
                            todo.append((4, n, k, None, block[:i] + [out, s.body[-1]] + block[i + 1:]))
                        if i + 1 < len(block):       # the next line into the block
                            into = copy.copy(s)
                            into.body = s.body + [block[i + 1]]
                            todo.append((5, n, k, None, block[:i] + [into] + block[i + 2:]))
                    if i:
                        todo.append((6, n, k, None, block[:i - 1] + [s, block[i - 1]] + block[i + 1:]))
                    if isinstance(s, ast.If) and isinstance(s.test, ast.Compare) and isinstance(s.test.ops[0], ast.In):
                        for b in s.body:             # each occurrence counts, not only whether there is one
                            if isinstance(b, ast.AugAssign):
                                many = ast.Call(ast.Attribute(s.test.comparators[0], "count", ast.Load()), [s.test.left], [])
                                todo.append((0, n, k, None, block[:i] + [ast.AugAssign(b.target, b.op, many)] + block[i + 1:]))
                    if isinstance(s, ast.Break):
                        todo.append((1, n, k, None, block[:i] + [ast.Continue()] + block[i + 1:]))
                    if isinstance(s, ast.Expr):
                        todo.append((4, n, k, None, block[:i] + [ast.Return(s.value)] + block[i + 1:]))
                for i in range(len(block) + 1):
                    todo += [(12 + j, n, k, None, block[:i] + [copy.deepcopy(d)] + block[i:]) for j, d in enumerate(donors)]
    todo.sort(key=lambda t: t[0])
    return [(tree, n, key, getattr(n, key)[:i] + [new] + getattr(n, key)[i + 1:] if i is not None else new)
            for rank, n, key, i, new in todo if rank < most]


def wanted(result, wants):
    return sum(map(same_text, result or [], wants))


def near(result, wants):
    pairs = [(r[1][:300], repr(w)[:300]) for r, w in zip(result, wants) if r[0] == "is"]
    return wanted(result, wants), sum(difflib.SequenceMatcher(None, *p).ratio() for p in pairs)


def search(tree, name, calls, wants, until):
    """Texts of small changes of the code, else of two at once, that pass all examples."""
    before = near(run_all([ast.unparse(tree)], calls, 1, until)[0] or [], wants)
    one, half = mutants(tree, name), time.time() + 0.6 * (until - time.time())
    got = run_all(one, calls, 0.15, half)
    good = [made(s, ast.unparse) for s, r in zip(one, got) if r and wanted(r, wants) == len(wants)]
    if good:
        return good
    better = sorted(((near(r, wants), -i) for i, r in enumerate(got) if r and near(r, wants) > before), reverse=True)
    for _, i in better:
        if time.time() > until:
            break
        two = mutants(made(one[-i], copy.deepcopy), name, 9)
        good += [made(s, ast.unparse) for s, r in zip(two, run_all(two, calls, 0.15, until, wants)) if r == len(wants)]
        if good:
            break
    return good


def choose(good, calls, name, until):
    """Of the candidates, one that most others agree with on further inputs."""
    rank, more = random.Random(0), []

    def vary(v):
        if isinstance(v, bool) or v is None:
            return rank.choice([True, False])
        if isinstance(v, (int, float)):
            return rank.choice([v + 1, v - 1, v * 2, 0, 1, rank.randint(0, 30)])
        if isinstance(v, (str, list, tuple)):
            w = rank.choice([list(v)[1:], list(v)[:-1], list(v) * 2, list(v)[::-1], list(v)])
            w = [vary(x) if not isinstance(x, str) and rank.random() < 0.3 else x for x in w]
            return "".join(w) if isinstance(v, str) else type(v)(w)
        return v
    for _ in range(30):
        args = [ast.literal_eval(a) for a in ast.parse(rank.choice(calls), mode="eval").body.args]
        more.append(f"{name}({', '.join(repr(vary(a)) for a in args)})")
    groups = {}
    for text, r in zip(good[:60], run_all(good[:60], more, 0.1, until)):
        groups.setdefault(json.dumps(r and [x if x[0] == "is" else 0 for x in r]), []).append(text)
    return max(groups.values(), key=len)[0]


def bare(tree):
    """The code without docstrings and imports: are two the same?"""
    tree = copy.deepcopy(tree)
    for n in ast.walk(tree):
        if isinstance(n, (ast.FunctionDef, ast.Module)):
            n.body = [s for s in n.body if not isinstance(s, (ast.Import, ast.ImportFrom))
                      and not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))] or [ast.Pass()]
    return ast.dump(tree)


def completed(reply, given, name):
    """The reply as a whole module with what it lacks, or None."""
    tree = None
    for text in sorted(re.findall(BLOCK, reply, re.S | re.I) or [reply], key=lambda b: (f"def {name}" in b, len(b))):
        lines = text.rstrip().split("\n")
        cut = [parse("\n".join(lines[:k])) for k in range(len(lines), max(0, len(lines) - 15), -1)]
        tree = next((c for c in cut if c and any(isinstance(n, ast.FunctionDef) for n in c.body)), tree)
    if not tree:
        return None
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    tree.body = [s for s in tree.body if isinstance(s, kept)]
    have = {n.name for n in tree.body if hasattr(n, "name")}
    if name and name not in have and len(have) == 1:
        tree.body += ast.parse(f"{name} = {[*have][0]}").body
    tree.body = [s for s in given.body if isinstance(s, kept[:4]) and getattr(s, "name", "") not in have | {name}] + tree.body
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)} | have | {
        n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} | {
        a.asname or a.name for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
    tree.body = ast.parse("\n".join(sorted({KNOWN[w] for w in used - bound if w in KNOWN}))).body + tree.body
    return tree


def main():
    reply = sys.stdin.read()
    prompt = json.loads(Path(".recreate/attempt.json").read_text(encoding="utf-8"))["prompt"]
    try:
        state = json.loads(STATE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        state = {"best": -1, "turn": 0, "done": False}
    state["turn"] += 1
    doc = "\n".join(re.findall(BLOCK, prompt, re.S)) or prompt
    given = parse(doc) or ast.Module([], [])
    m = re.search(r"function `(\w+)`", prompt) or re.search(r".*^def (\w+)", doc, re.S | re.M)
    name = m[1] if m else ""
    here = next((n for n in given.body if getattr(n, "name", "") == name and isinstance(n, ast.FunctionDef)), None)
    found = examples(doc, name, [a.arg for a in here.args.args]) if here else []
    calls, wants = [c for c, _ in found], [w for _, w in found]
    fix = bool(here and any(not isinstance(s, (ast.Expr, ast.Pass, ast.Import, ast.ImportFrom)) for s in here.body))
    tree = completed(reply, given, name)
    if not tree and not fix:
        print("there is no whole function in a ```python block in the reply")
        sys.exit(2)
    copied = bool(fix and tree and bare(tree) == bare(given))
    result = (run_all([ast.unparse(tree)], calls, 1.5, START + 6)[0] or [("raised", "no end")] * len(calls)) if tree else []
    won, text = wanted(result, wants), ast.unparse(tree) if tree else ""
    state["done"] = bool(tree and not copied and won == len(calls))
    bases = [given] * (fix and state["turn"] == 1) + [tree] * bool(tree and not copied)
    for base in bases if calls and not state["done"] else []:
        good = search(copy.deepcopy(base), name, calls, wants, START + (9 if len(bases) > 1 and base is given else 13))
        if good:
            text, won, state["done"] = choose(good, calls, name, START + 16), len(calls), True
            break
    if text and (won > state["best"] or state["done"]):
        state["best"] = won
        files = sorted(p for p in Path.cwd().glob("*.py") if p.name != "node.py")
        (files[0] if len(files) == 1 else Path("solution.py")).write_text(text + "\n", encoding="utf-8")
    STATE.write_text(json.dumps(state), encoding="utf-8")
    if state["done"]:
        print("solution.py is written")
        return
    print("Nothing is mended yet: this is the code with the bug." if copied else "That is not right yet.")
    for call, want, r in [x for x in zip(calls, wants, result) if not same_text(x[2], x[1])][:2]:
        print(f"{call} must give {want!r}, but {'gives' if r[0] == 'is' else 'fails:'} {r[1]}"[:400])


main()
