"""A data folder in AppWorld's layout, made by the package itself: one person, two notes, one
scenario of two tasks.

    python appworld_standin.py ROOT    run by the Python that has appworld, with its apps unpacked

The names of models and APIs are those that the package's wheel shows in plain
(`appworld/collections/*.pyi`).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

PERSON = {
    "first_name": "Ann",
    "last_name": "Lee",
    "email": "ann.lee@gmail.com",
    "phone_number": "5550100",
}
PASSWORD = "secret1"
EVALUATION = """
import json


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    with test("the answer is right"):
        test.answer(json.loads(models.end.supervisor.Task.first().answer), ground_truth_answer)
    with test("nothing but what was asked has changed"):
        test.case(models.changed_model_names(), "==", {changed})
"""
SOLUTION = """
def solution(apis, requester):
    password = apis.supervisor.show_account_passwords()[0]["password"]
    token = apis.simple_note.login(username="ann.lee@gmail.com", password=password)["access_token"]
    note = apis.simple_note.search_notes(access_token=token, query="Shopping")[0]
    {does}
    apis.supervisor.complete_task({answer})
"""
DELETES = 'apis.simple_note.delete_note(access_token=token, note_id=note["note_id"])'
TASKS: dict[str, tuple[str, Any, set[str], str]] = {
    "abc1234_1": ("How many things are on my shopping list?", 3, set(), "pass"),
    "abc1234_2": ("Delete my shopping list.", None, {"simple_note.Note"}, DELETES),
}
CHECKS = ("the answer is right", "nothing but what was asked has changed")


def main(root: Path) -> None:
    os.environ["APPWORLD_ROOT"] = str(root)
    data = root / "data"
    for name in ("base_dbs", "tasks", "datasets", "api_docs/standard"):
        (data / name).mkdir(parents=True, exist_ok=True)
    apps = list(importlib.import_module("appworld.apps").get_all_apps())
    docs = importlib.import_module("appworld.collections.api_docs").ApiDocCollection.build(
        tuple(apps)
    )
    for app, found in docs.items():
        told = {name: {**doc, "canary_string": ""} for name, doc in found.items()}
        (data / "api_docs" / "standard" / f"{app}.json").write_text(json.dumps(told))
    kinds = importlib.import_module("appworld.collections.models").ModelCollection
    base = str(data / "base_dbs")
    models = kinds.load(to_db_home_path=base, load_apps=apps, create_db=True)
    born = {"birthday": "1990-01-01", "sex": "female"}
    models.admin.MainUser.create(**PERSON, **born).save()
    user = {key: value for key, value in PERSON.items() if key != "phone_number"}
    models.simple_note.User.create(**user, password=PASSWORD, verified=True).save()
    for title, content in (("Shopping", "bread, milk, tea"), ("Films", "Alien")):
        models.simple_note.Note.create(user_id=1, title=title, content=content).save()
    models.close()
    version = importlib.import_module("appworld.common.constants").DB_VERSION
    for task, (instruction, answer, changed, does) in TASKS.items():
        models = kinds.load(
            to_db_home_path=f":memory:task_input-{task}", from_db_home_path=base, load_apps=apps
        )
        models.supervisor.Supervisor.create(**PERSON, **born).save()
        models.supervisor.AccountPassword.create(
            supervisor_id=1, account_name="simple_note", password=PASSWORD
        ).save()
        models.supervisor.Task.create(supervisor_id=1, instruction=instruction).save()
        models.save(str(data / "tasks" / task / "dbs"), format="changes", app_names=apps)
        models.close()
        specs = {
            "instruction": instruction,
            "supervisor": PERSON,
            "datetime": "2023-05-18T12:00:00",
        }
        (data / "tasks" / task / "specs.json").write_text(
            json.dumps({**specs, "db_version": version})
        )
        truth = data / "tasks" / task / "ground_truth"
        truth.mkdir()
        metadata = {
            "difficulty": 1,
            "mode": "full",
            "num_apps": 1,
            "num_apis": 1,
            "num_solution_code_lines": 5,
        }
        labels = ["no_op_fail", "no_op_fail" if changed else "no_op_pass"]
        tests = [
            {"requirement": name, "label": label}
            for name, label in zip(CHECKS, labels, strict=True)
        ]
        files = {
            "metadata": metadata,
            "public_data": {},
            "private_data": {},
            "answer": answer,
            "test_data": tests,
        }
        for name, value in files.items():
            (truth / f"{name}.json").write_text(json.dumps(value))
        (truth / "evaluation.py").write_text(EVALUATION.replace("{changed}", repr(changed)))
        said = "" if answer is None else f"answer={answer}"
        (truth / "compiled_solution.py").write_text(SOLUTION.format(does=does, answer=said))
    (data / "datasets" / "train.txt").write_text("\n".join(TASKS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
