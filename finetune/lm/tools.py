"""Tool calls in chats: the functions that a model may call, and its calls.

The form is that of OpenAI's chat API, which models' chat templates take: `tools` of a chat describe
functions by JSON schemas, `tool_calls` of an answer are its calls, and a message of the role `tool`
has a result.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

TOOLS, CALLS = "tools", "tool_calls"

Object = Mapping[str, Any]


def read_tools(row: Object) -> Sequence[Object]:
    """Return the functions of a chat; none by default. ValueError or TypeError if malformed."""
    return tuple(_objects(row, TOOLS))


def read_calls(message: Object) -> Sequence[Object]:
    """Return the calls of a message with their arguments as objects; none by default.

    ValueError or TypeError if malformed.
    """
    return [_call(call) for call in _objects(message, CALLS)]


def _objects(fields: Object, name: str) -> list[Object]:
    found = fields.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise TypeError(f"{name} is not a list of objects")
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # JSON allows it, UTF-8 does not
        raise ValueError(f"{name} has half of a surrogate pair") from error
    return found


def _call(call: Object) -> Object:
    """Return a call as templates take it: arguments may have been a text, as the API gives them."""
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError(f"one of {CALLS} has no function with a name")
    read = {**function, "arguments": _arguments(function)}
    return {**call, "function": read} if "function" in call else read


def _arguments(function: Object) -> Object:
    arguments = function.get("arguments") or {}
    try:
        found = json.loads(arguments) if isinstance(arguments, str) else arguments
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"the arguments of a call of {function['name']} are not a JSON object")
    return found
