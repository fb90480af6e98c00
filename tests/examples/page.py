"""A page of a run in one file: what each task cost. `recreate show RUN --page
tests.examples.page:cost`.

Installed, it is found by its name: [project.entry-points."recreate.page"] cost = "my_package:cost".
"""

from __future__ import annotations

from recreate.api.types import Usage
from recreate.runs.reader import Run
from recreate.viewer.html import document

MAIN = """
<h1>Cost per task</h1>
<table>
<thead><tr><th scope="col">task</th><th scope="col">calls</th><th \
scope="col">tokens</th><th>USD</th></tr></thead>
<tbody>
{% for task, usage in rows %}
<tr><th scope="row">{{ task }}</th><td>{{ usage.calls }}</td><td>{{ usage.tokens_in + \
usage.tokens_out }}</td>
<td>{{ usage.usd|usd }}</td></tr>
{% endfor %}
</tbody>
</table>
"""


def cost(run: Run) -> str:
    """The attempts of a run, added up by task, the dearest first."""
    spent: dict[str, Usage] = {}
    for record in run.records("experience"):
        usage = run.experience(record["attempt"]).trace.usage
        spent[record["task"]] = spent.get(record["task"], Usage()) + usage
    rows = sorted(spent.items(), key=lambda row: (-row[1].usd, -row[1].calls, row[0]))
    return document(f"Cost per task of {run.folder.name}", MAIN, rows=rows)
