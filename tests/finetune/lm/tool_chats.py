"""A chat that calls a tool, and a template that writes it."""

from typing import Any

WRITES_TOOLS = (
    "{% if tools %}<s>tools\n{{ tools | tojson }}</s>{% endif %}"
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
SCHEMA = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
QUESTION = {"role": "user", "content": "rain?"}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Kraków"}}}
CHAT: list[dict[str, Any]] = [
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "weather", "content": "8 mm"},
    {"role": "assistant", "content": "Yes."},
]
