"""The zoo: tiny models, trained by the compiled step and by PyTorch; one line a verdict.

bazel run //tests/zoo:zoo -- [--only PATTERN ...]
"""

from collections import Counter
from fnmatch import fnmatchcase

import click

from pockengine.tests.zoo.zoo_language import LANGUAGE
from pockengine.tests.zoo.zoo_pictures import PICTURES
from pockengine.tests.zoo.zoo_plain import PLAIN
from pockengine.tests.zoo.zoo_run import judge

ZOO = {**PLAIN, **LANGUAGE, **PICTURES}


@click.command()
@click.option("--only", multiple=True, default=("*",), help="Names of models, as in a shell.")
def main(only: tuple[str, ...]) -> None:
    """Judge the models of the zoo and count the verdicts."""
    counts: Counter[str] = Counter()
    for name, build in ZOO.items():
        if any(fnmatchcase(name, pattern) for pattern in only):
            verdict = judge(name, build)
            counts[verdict.kind] += 1
            words = " ".join(verdict.words.split())[:160]
            click.echo(f"{name:32} {verdict.kind:8} {verdict.seconds:6.1f} s  {words}")
    click.echo(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
