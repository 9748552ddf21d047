"""Check thousands of random trainings: `bazel run //tests/compiler:fuzz_updates -- --graphs N`.

Prints how many graphs were compared, how many were refused with an error, and the seeds of wrong
ones; the exit status is 1 if there are any.
"""

import argparse
import sys
from collections import Counter

from pockengine.errors import CompileError, SchemeError
from pockengine.tests.compiler.lowered_training import check_training
from pockengine.tests.compiler.random_nets import draw_net
from pockengine.tests.compiler.random_trainings import draw_training

EVERY = 8
"""Interval of graphs that are verified after each pass, not only when compiled."""
REPORT = 1000


def check(seed: int) -> str:
    """Return the outcome of a graph: compared, refused or WRONG."""
    graph = draw_net(seed)
    try:
        check_training(graph, draw_training(graph, seed), seed, check=seed % EVERY == 0)
    except (CompileError, SchemeError):
        return "refused"
    except Exception as error:  # any other exception is a compiler bug
        print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        return "WRONG"
    return "compared"


def main() -> int:
    """Read the arguments, check the seeds and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.first + arguments.graphs):
        counts[check(seed)] += 1
        if counts.total() % REPORT == 0:
            print(f"{counts.total()} graphs: {dict(counts)}", flush=True)
    print(f"{counts.total()} graphs: {dict(counts)}")
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
