"""A chat that calls a tool, and a template that writes it."""

from typing import Any

WRITES_TOOLS = (
    "{% if tools %}<s>tools\n{{ tools | tojson }}</s>{% endif %}"
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
GROUPS_RESULTS = (
    "{% for t in tools or [] %}<s>{{ t | tojson(indent=2) }}</s>{% endfor %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.previtem.role != 'tool' %}<s>user{% endif %}\n[{{ m.content }}]"
    "{% if loop.last or loop.nextitem.role != 'tool' %}</s>{% endif %}"
    "{% else %}<s>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "\n{{ c.function.name }}: {{ c.function.arguments | tojson }}{% endfor %}</s>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
"""Writes results that follow each other as one turn of the user, like Qwen's."""
SCHEMA = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
QUESTION = {"role": "user", "content": "rain?"}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Kraków"}}}
CHAT: list[dict[str, Any]] = [
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "weather", "content": "8 mm"},
    {"role": "assistant", "content": "Yes."},
]
