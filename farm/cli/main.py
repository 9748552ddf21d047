"""`bazel run //farm -- COMMAND`: the commands of the farm alone, which need no framework.

They are commands of `pockengine` too. `bazel run //farm:bench` measures on boards.
"""

import click

from pockengine.farm.cli.ab import ab
from pockengine.farm.cli.boards import boards
from pockengine.farm.cli.cycles import cycles
from pockengine.farm.cli.enroll import add, ping
from pockengine.farm.cli.jobs import jobs, leases, log, quarantine, run
from pockengine.farm.cli.results import compare, history, results_command
from pockengine.signals import ending_on_signals


@click.group()
def cli() -> None:
    """The device farm: boards, leases, jobs, results."""


COMMANDS = (ab, add, ping, boards, cycles, jobs, run, leases, log, quarantine)
for command in (*COMMANDS, compare, history, results_command):
    cli.add_command(command)

if __name__ == "__main__":
    with ending_on_signals():
        cli()
