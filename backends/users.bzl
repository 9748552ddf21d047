"""Who may use a backend, beside tests."""

USERS = [
    "//",
    "//backends",
    "//cli",
    "//examples",
    "//farm/bench",
    "//farm/cli",
    "//farm/firmware",
    "//farm/gpu",
    "//farm/jobs",
    "//farm/references",
    "//farm/report",
    "//finetune",
    "//studies",
]
