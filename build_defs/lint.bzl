"""checked_files: the files of a package that the checks in tests/repo read."""

CHECKED = [
    "**/*.bzl",
    "**/*.c",
    "**/*.h",
    "**/*.lock",
    "**/*.md",
    "**/*.py",
    "**/*.sh",
    "**/*.toml",
    "BUILD",
]

def checked_files(patterns = CHECKED):
    """Collect the package's files for tests/repo, which names every package that has some.

    Args:
      patterns: globs, for a package that is not a plain folder of sources.
    """
    native.filegroup(
        name = "checked_files",
        srcs = native.glob(patterns, allow_empty = True, exclude = ["**/__pycache__/**"]),
        visibility = ["//tests/repo:__pkg__"],
    )
