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
    """Return the functions of a chat; none by default. ValueError or TypeError if malformed.

    They may be a text of JSON: rows of a table share all keys of objects.
    """
    found = row.get(TOOLS)
    if isinstance(found, str) and found:
        found = _parsed(found)
    return tuple(_objects({TOOLS: found}, TOOLS))


def read_calls(message: Object) -> Sequence[Object]:
    """Return the calls of a message with their arguments as objects; none by default.

    ValueError or TypeError if malformed.
    """
    return [_call(call) for call in _objects(message, CALLS)]


def with_texts(messages: Sequence[Object]) -> list[Object]:
    """Return messages with the arguments of calls as texts, which some templates take."""
    return [
        {**message, CALLS: [_with_text(call) for call in message[CALLS]]}
        if CALLS in message
        else message
        for message in messages
    ]


def _with_text(call: Object) -> Object:
    function = call.get("function", call)
    text = json.dumps(function["arguments"], ensure_ascii=False)
    written = {**function, "arguments": text}
    return {**call, "function": written} if "function" in call else written


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
    found = _parsed(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(found, dict):
        raise ValueError(f"the arguments of a call of {function['name']} are not a JSON object")
    return found


def _parsed(text: str) -> Any:
    """Return the value of JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
