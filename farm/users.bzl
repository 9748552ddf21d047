"""Who may run jobs on boards, beside tests."""

USERS = [
    "//cli",
    "//examples",
    "//farm/bench",
    "//farm/cli",
    "//farm/jobs",
    "//studies/tinyengine",
]
