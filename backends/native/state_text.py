"""Generate C for a training's state: structures and fields, from the table of training_state.py.

`python -m pockengine.backends.native.state_text` writes them into the runtime's files, between the
lines BEGIN and END; a test compares.
"""

from collections.abc import Iterable, Iterator

from pockengine.backends.native.runtime_files import runtime_file
from pockengine.backends.rate_schedule import KINDS, MOST_MILESTONES, PLAIN
from pockengine.backends.training_state import (
    OWN_NUMBERS,
    PLAIN_SCHEDULE,
    PROGRESS,
    SCHEDULE,
    Field,
)

BEGIN, END = "/* state_text.py: begin */\n", "/* state_text.py: end */\n"

_OTHER_NAMES = {"constant": "CONSTANT_RATE", "step": "STEPS", "multistep": "MILESTONES"}
"""C names of schedules that differ from their Python names."""
_BELOW = " /* this and all later kinds have a factor */"


def written() -> dict[str, str]:
    """Return the generated lines of each file of the runtime."""
    return {
        "pe.h": _structure("pe_progress", PROGRESS),
        "pe_train.h": f"{_kinds()}\n{_structure('pe_schedule', SCHEDULE)}",
        "pe_checkpoint.h": f"#define PE_FIELDS {len(PROGRESS) + len(SCHEDULE)}\n",
        "pe_checkpoint_texts.c": f"{_names()}\n{_fields()}",
    }


def replaced(text: str, between: str) -> str:
    """Return a file's text with the lines between BEGIN and END replaced."""
    before, _, behind = text.partition(BEGIN)
    _, _, after = behind.partition(END)
    return f"{before}{BEGIN}{between}{END}{after}"


def _constant(kind: str) -> str:
    return f"PE_{_OTHER_NAMES.get(kind, kind.upper().replace('-', '_'))}"


def _kinds() -> str:
    rows = [
        f"    {_constant(kind)},{_BELOW if kind == KINDS[len(PLAIN)] else ''}" for kind in KINDS
    ]
    lines = [
        "typedef enum pe_schedule_kind {",
        *rows,
        "    PE_SCHEDULES",
        "} pe_schedule_kind;",
        "",
    ]
    return "\n".join([*lines, f"#define PE_MOST_MILESTONES {MOST_MILESTONES}", ""])


def _structure(name: str, fields: Iterable[Field]) -> str:
    rows = [(_declaration(field), field.doc) for field in fields]
    width = max(len(declaration) for declaration, _ in rows)
    lines = [f"    {declaration:{width}} /* {doc} */" for declaration, doc in rows]
    return "\n".join([f"typedef struct {name} {{", *lines, f"}} {name};", ""])


def _declaration(field: Field) -> str:
    length = "" if field.kind.length is None else "[PE_MOST_MILESTONES]"
    return f"{field.kind.c_type} {field.name}{length};"


def _names() -> str:
    rows = [f'    "{kind}",' for kind in KINDS]
    head = ["/* clang-format off */", "const char *const pe_schedule_names[PE_SCHEDULES + 1] = {"]
    return "\n".join([*head, *rows, "    NULL,", "};", "/* clang-format on */", ""])


def _fields() -> str:
    groups = (
        ("progress", "PE_OF_PROGRESS", PROGRESS),
        ("schedule", "PE_OF_SCHEDULE", PLAIN_SCHEDULE),
        ("schedule", "PE_OF_FACTOR", OWN_NUMBERS),
    )
    rows = (row for place, group, fields in groups for row in _rows(place, group, fields))
    return "\n".join(["const pe_field pe_fields[PE_FIELDS] = {", *rows, "};", ""])


def _rows(place: str, group: str, fields: Iterable[Field]) -> Iterator[str]:
    for field in fields:
        at = f"AT({place}.{field.name})"
        yield f'    {{"pockengine.{field.key}", {field.kind.form}, {group}, {field.since}, {at}}},'


def main() -> None:
    """Write all generated parts."""
    for name, between in written().items():
        path = runtime_file(name)
        path.write_text(replaced(path.read_text(encoding="utf-8"), between), encoding="utf-8")


if __name__ == "__main__":
    main()
