"""One question about bills, as JSON: generate.py SEED LEVEL. Each level asks for one step more than the one before."""

import json
import random
import sys

seed, level = int(sys.argv[1]), int(sys.argv[2])
draw = random.Random(f"{seed}/{level}")
names = ["ann", "bob", "cid", "dan", "eva"]
bills = [
    {
        "number": n,
        "name": draw.choice(names),
        "amount": draw.randint(5, 60),
        "state": draw.choice(["open", "open", "paid"]),
        "month": draw.randint(1, 12),
        "currency": draw.choice(["EUR", "USD"]) if level >= 4 else "EUR",
    }
    for n in range(1, 8 + 4 * level)
]
wanted = [bill for bill in bills if bill["state"] == "open"]
ask, files = "bills.csv lists bills. How much is open in all", {}
if level >= 2:
    chosen = draw.sample(names, 3)
    wanted = [bill for bill in wanted if bill["name"] in chosen]
    ask += f" of {', '.join(chosen[:-1])} and {chosen[-1]}"
if level >= 3:
    first = draw.randint(3, 6)
    wanted = [bill for bill in wanted if bill["month"] >= first]
    ask += f", of bills from month {first} on"
total = sum(bill["amount"] * (2 if bill["currency"] == "USD" else 1) for bill in wanted)
if level >= 4:
    ask += ", in EUR (a USD is 2 EUR)"
if level >= 5:
    part = [draw.choice(bills) for _ in range(6)]
    files["returned.csv"] = "number\n" + "".join(f"{n}\n" for n in sorted({bill["number"] for bill in part}))
    total -= sum(bill["amount"] * (2 if bill["currency"] == "USD" else 1) for bill in wanted if bill in part)
    ask += ", without those that returned.csv lists by their number"
columns = list(bills[0])
rows = [",".join(str(bill[name]) for name in columns) for bill in bills]
files["bills.csv"] = "\n".join([",".join(columns), *rows]) + "\n"
print(json.dumps({"prompt": ask + "?", "answer": total, "files": files}))
