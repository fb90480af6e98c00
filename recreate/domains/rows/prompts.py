"""What an agent is shown of a row: its prompt, a text or messages of a chat, and the choices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from string import ascii_uppercase
from typing import Any


def read_prompt(value: Any) -> str:
    """Return the text of a prompt. Raises ValueError that says what is wrong with the cell."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):  # else a text that begins with a bracket
            value = _messages(json.loads(value)) or value
    text = value if isinstance(value, str) else _join(_messages(value))
    if not text.strip():
        raise ValueError(explain_no_text(value))
    return text.strip()


def explain_no_text(value: Any) -> str:
    """Return why a cell holds no text."""
    blank = value in (None, "") or (isinstance(value, str) and not value.strip())
    return "is empty" if blank else "is no text"


def _messages(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the messages of a chat; () where the cell has none."""
    chat = isinstance(value, list) and all(
        isinstance(each, Mapping) and each.keys() >= {"role", "content"} for each in value
    )
    return value if chat else ()


def _join(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what the messages say. Several turns are told apart by their roles; the last one must
    be the question, since an answer there would be given away."""
    if messages and messages[-1]["role"] == "assistant":
        raise ValueError("ends with the assistant's own turn, which would give the answer away")
    said = [(str(each["role"]), _text(each["content"])) for each in messages]
    one_turn = all(role in ("system", "developer", "user") for role, _ in said)
    return "\n\n".join(text if one_turn else f"{role}: {text}" for role, text in said if text)


def _text(content: Any) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("has a message with a part that is no text, and agents are shown text")
    return "\n".join(map(str, texts))


# --- choices
# ------------------------------------------------------------------------------------------


def read_choices(value: Any) -> dict[str, str]:
    """Return label -> text of the choices in a cell: a list, label -> text, a list of {"label",
    "text"}, or {"label": [...], "text": [...]}. Raises ValueError."""
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        labels, texts = value.get("label"), value["text"]
    elif isinstance(value, Mapping):
        labels, texts = list(value), list(value.values())
    elif isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        labels, texts = ([each.get(key) for each in value] for key in ("label", "text"))
    else:
        labels, texts = None, value
    if not isinstance(texts, list) or not 2 <= len(texts) <= len(ascii_uppercase):
        raise ValueError("is no list of 2 to 26 choices")
    if not isinstance(labels, list) or len(labels) != len(texts):
        labels = list(ascii_uppercase[: len(texts)])
    found = {str(label): str(text).strip() for label, text in zip(labels, texts, strict=True)}
    plain = all(isinstance(text, str | int | float) for text in texts)
    if not plain or len(found) < len(texts) or max(map(len, found)) > 3:
        raise ValueError("has a choice that is no text, or two with one label")
    return found


def list_choices(choices: Mapping[str, str]) -> str:
    """Return the choices as a prompt has them."""
    return "\n".join(f"{label}. {text}" for label, text in choices.items())


def name_choice(value: Any, answer: Any) -> list[str]:
    """Return the label of the right one of the choices in a cell, and its text. answer: its label,
    its text, or its place counted from 0. Raises ValueError for what is none of them."""
    choices, said = read_choices(value), str(answer).strip()
    labels = list(choices)
    by_label = [said] if said in choices else []
    by_text = [label for label, text in choices.items() if text == said]
    by_place = labels[int(said) :][:1] if said.isdecimal() else []
    texts_are_numbers = isinstance(value, list) and type(value[0]) is int
    if type(answer) is int and not texts_are_numbers:
        found = by_label or by_place
    else:
        found = by_label or by_text or by_place
    if len(found) != 1:
        raise ValueError(f"is none of its choices, which are {', '.join(labels)}")
    text = choices[found[0]]
    return found if text in choices else [found[0], text]
