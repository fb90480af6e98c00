#!/usr/bin/env python3
"""Prints the tables of the database in /work and the conditions by which its data join them."""

import sys

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
from importlib.machinery import SourceFileLoader
from itertools import combinations
from pathlib import Path

sys.dont_write_bytecode = True
write = SourceFileLoader("write", str(Path(__file__).with_name("write"))).load_module()
database = write.opened()
print("# The tables of the database")
for (made,) in database.execute("SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql > ''"):
    print(made)
known = write.columns(database)
joins = [(pair, link) for pair in combinations(known, 2) for link in write.links(database, known, *pair)[:1]]
keyed = [join for join in joins if join[1][0] > 1]
if joins:
    print("\n# Joins")
for (a, b), (_, x, y) in (keyed or joins)[:20]:
    print(f"{a}.{x} = {b}.{y}")
