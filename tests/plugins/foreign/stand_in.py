"""A whole agent that is not ours, for tests: asks for a shell's command, runs it, and ends when
there is none."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path


def ask(messages):
    body = json.dumps({"model": "any", "messages": messages}).encode()
    head = {
        "Content-Type": "application/json",
        "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
    }
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def main():
    system = Path(os.environ["RECREATE_AGENT"], "prompts/system.md").read_text()
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": Path(sys.argv[1]).read_text()},
    ]
    while True:
        said = ask(messages)
        block = re.search(r"```bash\n(.*?)```", said, re.DOTALL)
        if not block or block[1].strip() == "submit":
            print("done after", len(messages), "messages")
            return
        done = subprocess.run(["sh", "-c", block[1]], capture_output=True, text=True)
        messages.append({"role": "assistant", "content": said})
        messages.append(
            {"role": "user", "content": done.stdout + done.stderr + f"[{done.returncode}]"}
        )


main()
