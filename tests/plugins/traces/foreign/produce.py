"""Makes the samples of the packages that install, in the current folder: python produce.py NAME.

Run by `pytest -m live tests/plugins/traces/test_importers_live.py` in an environment of its own;
the suite needs nothing of this.
mini-swe-agent and langsmith are asked for by PACKAGES.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

PACKAGES = {
    "mini": ["mini-swe-agent==2.4.6"],
    "inspect": ["inspect_ai==0.3.285"],
    "otel": [
        "opentelemetry-sdk",
        "opentelemetry-util-genai",
        "opentelemetry-exporter-otlp-json-file",
    ],
    "langsmith": ["langsmith==0.15.0"],
}
BROKEN = "def mean(xs):\n    return sum(xs) / (len(xs) + 1)\n"


def mini() -> None:
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.test_models import (
        DeterministicModel,
        DeterministicToolcallModel,
        make_output,
        make_toolcall_output,
    )

    sandbox = Path("box").absolute()
    sandbox.mkdir(exist_ok=True)
    asked = {
        "system_template": "You are a careful engineer. Answer with one command.",
        "cost_limit": 100,
    }
    asked["instance_template"] = "Please solve this issue:\n{{task}}\n\nOne command a turn."
    commands = [
        "cat mean.py",
        "sed -i 's/ + 1)/)/' mean.py",
        "python -c 'import mean; print(mean.mean([2, 4])); mean.mean([])'",
        "printf 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\\n'; cat mean.py",
    ]
    says = [
        "I look at the file.",
        "The length is one too large.",
        "I check it, and the empty list.",
        "Done.",
    ]
    called = []
    for n, (said, command) in enumerate(zip(says, commands, strict=True)):
        function = {"name": "bash", "arguments": json.dumps({"command": command})}
        call = {"id": f"call_{n}", "type": "function", "function": function}
        called.append(
            make_toolcall_output(said, [call], [{"command": command, "tool_call_id": f"call_{n}"}])
        )
    (sandbox / "mean.py").write_text(BROKEN)
    agent = DefaultAgent(
        DeterministicToolcallModel(outputs=called), LocalEnvironment(cwd=str(sandbox)), **asked
    )
    agent.run("mean([2, 4]) returns 2.0 instead of 3.0. Mend mean.py.")
    agent.save(Path("toy__mean-1.traj.json"), {"instance_id": "toy__mean-1"})
    written = [
        make_output(f"{said}\n\n```mswea_bash_command\n{command}\n```", [{"command": command}])
        for said, command in zip(says[:2], commands[:2], strict=True)
    ]
    (sandbox / "mean.py").write_text(BROKEN)
    agent = DefaultAgent(
        DeterministicModel(outputs=written),
        LocalEnvironment(cwd=str(sandbox)),
        **{**asked, "step_limit": 2},
    )
    agent.run("mean([]) raises ZeroDivisionError. It shall return 0.0.")
    agent.save(Path("toy__mean-2.traj.json"), {"instance_id": "toy__mean-2"})


def inspect() -> None:
    import tiktoken

    class Words:
        """Counts words: the real encodings are fetched from a hub."""

        def encode(self, text, **_):
            return text.split()

    tiktoken.get_encoding = tiktoken.encoding_for_model = lambda name: Words()
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ModelOutput, get_model
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, system_message, use_tools
    from inspect_ai.tool import tool

    @tool
    def add():
        async def execute(x: int, y: int) -> str:
            """Add two numbers.

            Args:
                x: first
                y: second
            """
            return str(x + y)

        return execute

    name = "mockllm/model"
    outputs = [
        ModelOutput.for_tool_call(name, "add", {"x": 2, "y": 3}),
        ModelOutput.from_content(name, "The sum is 5."),
        ModelOutput.from_content(name, "I think it is 12."),
    ]
    task = Task(
        name="sums",
        dataset=[
            Sample(id="sum-1", input="What is 2 + 3?", target="5", metadata={"level": "easy"}),
            Sample(id="sum-2", input="What is 6 + 7?", target="13"),
        ],
        solver=[system_message("Add with the tool."), use_tools(add()), generate()],
        scorer=includes(),
    )
    (log,) = eval(
        task,
        model=get_model(name, custom_outputs=outputs),
        log_dir="logs",
        display="none",
        max_samples=1,
    )
    Path(log.location).rename("sums.eval")
    log = read_eval_log("sums.eval")
    log.samples = log.samples[:1]
    write_eval_log(log, "sum-1.json", format="json")


def otel() -> None:
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.util.genai.handler import TelemetryHandler
    from opentelemetry.util.genai.types import InputMessage, OutputMessage
    from opentelemetry.util.genai.types import TextPart as Text
    from opentelemetry.util.genai.types import ToolCallRequestPart as Request
    from opentelemetry.util.genai.types import ToolCallResponsePart as Response

    provider = TracerProvider(resource=Resource({"service.name": "weather-agent"}))
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter("traces.jsonl")))
    handler = TelemetryHandler(tracer_provider=provider)
    system = [Text(content="Ask the tool.")]

    def chat(sent, reply, reason, tokens):
        with handler.inference("openai", request_model="small-model") as asked:
            asked.input_messages, asked.system_instruction = sent, system
            asked.output_messages = [
                OutputMessage(role="assistant", parts=[reply], finish_reason=reason)
            ]
            asked.input_tokens, asked.output_tokens = tokens
            asked.response_model_name = "small-model-2"

    for city, answer, score in (
        ("Oslo", "It rains in Oslo, at 9 degrees.", 1.0),
        ("Rome", "It is sunny in Rome.", 0.0),
        ("Bern", "It rains in Bern.", None),
    ):
        asked = [InputMessage(role="user", parts=[Text(content=f"What is the weather in {city}?")])]
        with handler.invoke_local_agent(request_model="small-model", agent_name="weather") as agent:
            agent.input_messages, agent.system_instruction = asked, system
            call = Request(arguments={"city": city}, name="weather", id="call_1")
            chat(asked, call, "tool_call", (31, 9))
            with handler.tool("weather", tool_call_id="call_1", tool_type="function") as tool:
                tool.arguments, tool.tool_result = {"city": city}, "rain, 9 C"
            said = InputMessage(role="assistant", parts=[call])
            came = InputMessage(role="tool", parts=[Response(response="rain, 9 C", id="call_1")])
            chat([*asked, said, came], Text(content=answer), "stop", (52, 12))
            agent.output_messages = [
                OutputMessage(role="assistant", parts=[Text(content=answer)], finish_reason="stop")
            ]
            if score is not None:
                graded = {
                    "name": "correct",
                    "score.value": score,
                    "score.label": "pass" if score else "fail",
                }
                graded["explanation"] = "the tool said rain"
                event = {f"gen_ai.evaluation.{k}": v for k, v in graded.items()}
                trace.get_current_span().add_event("gen_ai.evaluation.result", event)
    provider.shutdown()


def langsmith() -> None:
    """Runs as the SDK posts them, to a server of this process, read with its own schema."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append(self.rfile.read(int(self.headers.get("content-length", 0))))
            self.send_response(202)
            self.end_headers()
            self.wfile.write(b"{}")

        do_PATCH = do_POST

        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            batch = {
                "use_multipart_endpoint": False,
                "size_limit": 100,
                "size_limit_bytes": 20_000_000,
            }
            batch |= {
                "scale_up_nthreads_limit": 2,
                "scale_up_qsize_trigger": 1000,
                "scale_down_nempty_trigger": 4,
            }
            self.wfile.write(
                json.dumps({"version": "0.10.0", "batch_ingest_config": batch}).encode()
            )

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_API_KEY": "none",
        "LANGSMITH_PROJECT": "capitals",
    }
    os.environ["LANGSMITH_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    from langsmith import Client, traceable
    from langsmith.schemas import Run

    client = Client()

    @traceable(run_type="tool")
    def lookup(country):
        return {"France": "Paris", "Peru": "Lima"}.get(country, "unknown")

    @traceable(run_type="llm", metadata={"ls_model_name": "small-model", "ls_provider": "openai"})
    def chat(messages):
        n = len(messages)
        if n == 2:
            country = messages[1]["content"].split()[-1].rstrip("?")
            function = {"name": "lookup", "arguments": json.dumps({"country": country})}
            said = {"role": "assistant", "content": ""}
            said["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        else:
            said = {"role": "assistant", "content": f"It is {messages[-1]['content']}."}
        used = {"input_tokens": 10 * n, "output_tokens": 7, "total_tokens": 10 * n + 7}
        return {"choices": [{"index": 0, "message": said}], "usage_metadata": used}

    @traceable(run_type="chain", name="capital agent", client=client)
    def agent(question):
        told = [{"role": "system", "content": "Look it up."}, {"role": "user", "content": question}]
        said = chat(messages=told)["choices"][0]["message"]
        found = lookup(
            country=json.loads(said["tool_calls"][0]["function"]["arguments"])["country"]
        )
        told += [said, {"role": "tool", "tool_call_id": "call_1", "content": found}]
        return {"output": chat(messages=told)["choices"][0]["message"]["content"]}

    for country in ("France", "Peru", "Narnia"):
        agent(f"What is the capital of {country}?")
    client.flush(timeout=20)
    time.sleep(1)
    runs = {}
    for body in posted:
        batch = json.loads(body)
        for run in batch.get("post", []) + batch.get("patch", []):
            runs.setdefault(run["id"], {}).update({k: v for k, v in run.items() if v is not None})
    with Path("runs.jsonl").open("w") as file:
        for run in runs.values():
            run |= {"child_run_ids": [], "app_path": "/runs/" + run["id"]}
            run.pop("events", None)
            (run.get("extra") or {}).pop("runtime", None)
            for country, score in (("France", 1.0), ("Narnia", 0.0)):
                if not run.get("parent_run_id") and country in run["inputs"]["question"]:
                    run["feedback_stats"] = {"correctness": {"n": 1, "avg": score}}
            known = {k: v for k, v in run.items() if k in Run.model_fields}
            file.write(Run(**known).model_dump_json(exclude_none=True) + "\n")


if __name__ == "__main__":
    {"mini": mini, "inspect": inspect, "otel": otel, "langsmith": langsmith}[sys.argv[1]]()
