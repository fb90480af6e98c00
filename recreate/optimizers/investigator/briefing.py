"""How an agent runs, told in plain words from its agent.toml: an optimizer that has to guess it builds on sand."""

from __future__ import annotations

from recreate.agents.config import Agent


def tell_agent(agent: Agent) -> str:
    """What happens with the agent's files in one attempt, in the order in which it happens."""
    lines = []
    if agent.samples > 1:
        lines.append(f"It makes up to {agent.samples} independent samples of a task, each in a fresh environment.")
    if agent.before:
        names = ", ".join(f"tools/{name}" for name in agent.before)
        lines.append(f"Before the first turn {names} run in it; their output is `before.NAME` in the templates.")
    lines.append(
        f"Then it is shown system.md and workflow.md, rendered, and has {_turns(agent.limits.steps)}. {_action(agent)}"
    )
    lines.append(
        "What an action prints is shown by observation.md. A reply that cannot be read is answered by format.md."
    )
    lines.append("Either uses up the turn; after the last one no answer is shown.")
    if agent.done:
        lines.append(f"After each action tools/{agent.done} runs: exit status 0 ends the sample as handed in.")
    lines.append("What is in the environment when a sample ends is what it hands in, also when its turns are used up.")
    if agent.choose and agent.samples > 1:
        accepted = " the first accepted one is taken, else" if agent.done else ""
        lines.append(f"Of several samples{accepted} the one counts for which tools/{agent.choose} prints")
        lines.append("the highest number on its last line.")
    limits = agent.limits
    lines.append(
        f"A command may take {limits.command_seconds:g} s and shows at most {limits.observation_chars} characters; a "
        f"reply has at most {agent.model.max_tokens} tokens."
    )
    return " ".join(lines)


def _turns(steps: int) -> str:
    return "one turn" if steps == 1 else f"{steps} turns"


def _action(agent: Agent) -> str:
    if agent.action == "bash":
        return "Each reply must hold one ```bash block, which is run; `submit` alone hands the work in."
    if agent.action == "json":
        return 'Each reply is one JSON object {"thought", "command"}; the command is run, `submit` hands the work in.'
    name = agent.action.removeprefix("tool:")
    return (
        f"Each reply goes whole to tools/{name} on its standard input; its exit status 2 says that the reply could not "
        "be read, and its output how. The agent can run nothing else."
    )
