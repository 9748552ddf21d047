"""Every public function of the runtime, with valid and invalid values of each argument.

The first value of an argument is valid. Each other value replaces it in one call, which must be
refused and change nothing; values after `ALSO` are unusual but valid.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pockengine.backends.native.runtime_files import runtime_file

HEADERS = ("pe.h", "pe_train.h", "pe_host.h")
ALSO = "also"

_DECLARED = re.compile(r"^(?!typedef|struct)[\w ]+?\**\b(pe_\w+)\(([^;{]*?)\)\s*(?:;|\{$)", re.M)
_COMMENT = re.compile(r"/\*.*?\*/|^#.*?$|^__attribute__\(\(.*?\)\)\) ", re.S | re.M)


@dataclass(frozen=True)
class Function:
    """A function: the result of a refusal, and the values of its arguments."""

    refused: str
    arguments: tuple[tuple[str, ...], ...]

    def calls(self, name: str) -> Iterator[tuple[str, bool]]:
        """Yield calls as C, and whether each is refused; the first call's arguments are valid."""
        good = [values[0] for values in self.arguments]
        yield f"{name}({', '.join(good)})", False
        for place, values in enumerate(self.arguments):
            bad = values.index(ALSO) if ALSO in values else len(values)
            for number, value in enumerate(values[1:], 1):
                if number != bad:
                    changed = [*good[:place], value, *good[place + 1 :]]
                    yield f"{name}({', '.join(changed)})", number < bad


STATUS = "PE_ERROR_ARGUMENT"
SESSION = ("&session", "NULL", "&never", "&ended")
PROGRAM = ("PROGRAM", "NULL")
PATH = ("scratch", "NULL", '""', '"/nowhere/file"', '"/dev/full"', '"fifo"', '"."', "endless")
PLACE = (
    *("&good_place", "NULL", "&(pe_place){0}", '&(pe_place){.path = ".", .keep = 0}'),
    *('&(pe_place){.path = ".", .keep = -1}', '&(pe_place){.path = "/nowhere/file", .keep = 1}'),
    "&(pe_place){.path = scratch, .content = (pe_content)77, .keep = 1}",
)
CONTROLS = tuple(
    f"&(pe_controls){{{lr}, {step}, {seed}}}"
    for lr, step, seed in (
        *(("0.01f", 1, 0), ("NAN", 1, 0), ("INFINITY", 1, 0), ("-0.5f", 1, 0)),
        *(("0.1f", 0, 0), ("0.1f", "INT32_MIN", 0)),
    )
)
CONTENT = ("PE_TRAINED", "(pe_content)-1", "(pe_content)2", ALSO, "PE_WHOLE")
ENTRY = ("train", "NULL", "&foreign")
INPUTS = ("NULL", ALSO, "inputs")
OUTPUTS = ("NULL", ALSO, "outputs")
TENSOR = ("train->inputs", "NULL")
TRAINING = (
    "&good_training",
    "NULL",
    "&(pe_training){.until = 9}",
    "&(pe_training){.read = read_batch, .until = 9, .roll_back = true}",
    '&(pe_training){.read = read_batch, .until = 9, .place = {.path = ".", .keep = 0}}',
    '&(pe_training){.read = read_batch, .until = 9, .place = {.path = "/nowhere/file"}}',
    ALSO,
    "&(pe_training){.read = read_batch, .until = -9}",
    "&(pe_training){.read = read_batch, .until = 2, .save_every = -1}",
)
RESUMED = ("&good_training", "NULL", "&(pe_training){.read = read_batch, .until = 9}")
SIZES = (
    *("&good_sizes", "NULL", "&(pe_sizes){0}", "&(pe_sizes){NULL, NULL, 4, 1}"),
    *("&(pe_sizes){many, many, -1, -1}", "&(pe_sizes){many, many, 4, 1}"),
)
THREADS = ("1", "0", "-5", "1000000", "INT32_MIN", ALSO, "64")
MEMORY = ("&other", "NULL"), PROGRAM, ("memory", "NULL", "memory + 1"), ("space", "NULL", "space+1")
WEIGHT = ('"w"', "NULL", '""', '"banana"', "endless")
BYTES = ("60", "0", "59", "61", "SIZE_MAX")

CALLER = (
    *("&good_caller", "NULL", "&(pe_caller){PE_ABI - 1, sizeof(pe_session), text, sizeof text}"),
    *("&(pe_caller){PE_ABI, sizeof(pe_session) - 64, text, sizeof text}", "&(pe_caller){0}"),
    *("&(pe_caller){PE_ABI, sizeof(pe_session), text, 1}", "&(pe_caller){0, 0, text, 0}"),
    *(ALSO, "&(pe_caller){PE_ABI, sizeof(pe_session), NULL, 0}"),
)

FUNCTIONS = {
    "pe_init": Function(STATUS, (*MEMORY, THREADS)),
    "pe_init_by": Function(STATUS, (*MEMORY, THREADS, CALLER)),
    "pe_close": Function("", (SESSION,)),
    "pe_find_entry": Function("NULL", (PROGRAM, ('"train"', "NULL", '""', '"banana"', "endless"))),
    "pe_find_variant": Function(
        "NULL",
        (PROGRAM, ('"train"', "NULL", '""', "endless"), ("0", ALSO, "-1", "INT64_MIN")),
    ),
    "pe_tensor_data": Function("NULL", (SESSION, TENSOR)),
    "pe_run": Function(STATUS, (SESSION, ENTRY, INPUTS, OUTPUTS)),
    "pe_is_control": Function("false", (("rate", "NULL", "train->inputs"),)),
    "pe_set_controls": Function("", (SESSION, ENTRY, (CONTROLS[0], "NULL"))),
    "pe_train_step": Function(STATUS, (SESSION, INPUTS, (*CONTROLS, "NULL"), OUTPUTS)),
    "pe_predict": Function(STATUS, (SESSION, INPUTS, OUTPUTS)),
    "pe_fetch_params": Function(STATUS, (SESSION,)),
    "pe_param_data": Function("NULL", (SESSION, ("PROGRAM->params", "NULL"))),
    "pe_get_param": Function(STATUS, (SESSION, WEIGHT, ("numbers", "NULL"), BYTES)),
    "pe_set_param": Function(STATUS, (SESSION, WEIGHT, ("numbers", "NULL"), BYTES)),
    "pe_load_weights": Function(STATUS, (SESSION, ("weights", *PATH[1:]))),
    "pe_save_checkpoint": Function(STATUS, (SESSION, PATH, CONTENT)),
    "pe_try_checkpoint": Function(STATUS, (SESSION, PATH, CONTENT)),
    "pe_try_export": Function(STATUS, (SESSION, PATH, ("false", ALSO, "true"))),
    "pe_export_weights": Function(STATUS, (SESSION, PATH, ("false", ALSO, "true"))),
    "pe_check_ranges": Function(STATUS, (SESSION, ENTRY)),
    "pe_check_part": Function(
        STATUS,
        (SESSION, ENTRY, ("3", "-1", "4", "INT64_MIN", "INT64_MAX"), ("4", "0", "-4", "INT64_MIN")),
    ),
    "pe_tensor_bytes": Function("0", (TENSOR,)),
    "pe_dtype_bytes": Function("0", (("PE_F32", "(pe_dtype)-1", "(pe_dtype)99"),)),
    "pe_dtype_name": Function("", (("PE_F32", "(pe_dtype)-1", "(pe_dtype)99"),)),
    "pe_fail": Function(
        "", (("session.message", "NULL"), ("PE_OK", ALSO, "(pe_status)-1"), ('"x"', "NULL"))
    ),
    "pe_train": Function(STATUS, (SESSION, TRAINING)),
    "pe_train_next": Function(STATUS, (SESSION, ("&event", "NULL"))),
    "pe_try_place": Function(STATUS, (SESSION, PLACE)),
    "pe_resume": Function(STATUS, (SESSION, RESUMED, ("&found", "NULL"))),
    "pe_open": Function("NULL", (PROGRAM, THREADS, ("text", ALSO, "NULL"))),
    "pe_open_by": Function("NULL", (PROGRAM, THREADS, CALLER)),
    "pe_shut": Function("", (("pe_open(PROGRAM, 1, text)", "NULL"),)),
    "pe_specification": Function("NULL", (PROGRAM,)),
    "pe_cpu_lacks": Function("", ()),
    "pe_call": Function(
        STATUS, (SESSION, ('"train"', "NULL", '""', '"banana"'), INPUTS, OUTPUTS, SIZES)
    ),
    "pe_get_progress": Function("", (SESSION, ("&progress", "NULL"), ("&schedule", "NULL"))),
    "pe_set_progress": Function("", (SESSION, ("&progress", "NULL"), ("&schedule", "NULL"))),
    "pe_message": Function("", (SESSION,)),
    "pe_peak_rss_bytes": Function("", ()),
}
"""`refused` is the lowest error status, another result of a refusal, or "" without a result."""

STATES = (
    "session.schedule = NULL",
    *(
        "session.schedule->rate = NAN",
        "session.schedule->rate = -1",
        "session.schedule->rate = 1e300",
    ),
    *("session.schedule->kind = (pe_schedule_kind)99", "session.schedule->kind = PE_STEPS"),
    *("session.schedule->warmup = -1", "session.schedule->total = INT64_MIN"),
    *("session.progress.steps = -1", "session.progress.steps = INT64_MAX"),
    *("session.progress.updates = INT32_MAX", "session.progress.collected = INT64_MIN"),
)
"""Fields of a session that a caller may set; no step is run with these values."""


def declared() -> dict[str, int]:
    """Return the number of arguments of each public function, by name."""
    found = {}
    for header in HEADERS:
        text = _COMMENT.sub("", runtime_file(header).read_text())
        for name, arguments in _DECLARED.findall(text):
            listed = [a for a in arguments.split(",") if a.strip() not in ("void", "...")]
            found[name] = len(listed)
    return found


def cases() -> str:
    """Return the calls as the body of a C function."""
    lines = []
    for name, function in FUNCTIONS.items():
        for call, refused in function.calls(name):
            text = call.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'    BEGIN("{text}");')
            if function.refused == STATUS:
                lines.append(f"    STATUS({call}, {str(refused).lower()});")
            elif not function.refused:
                lines.append(f"    (void){call};")
            else:
                sign = "==" if refused else "!="
                lines.append(f"    CHECK({call} {sign} {function.refused});")
            lines.append("    END;")
    for state in STATES:
        lines += [f'    BEGIN("{state}");', f"    {state};"]
        lines += ["    STATUS(pe_train_next(&session, &event), true);"]
        if "schedule" in state:
            lines += ["    STATUS(pe_train(&session, &good_training), true);"]
        lines += ["    END;"]
    return "\n".join(lines)
