# SPDX-License-Identifier: Apache-2.0
"""The results of runs with faults: counted by each test, printed in one line, and added up in one table by suite.py."""
import dataclasses
import json

PREFIX = "tally: "


@dataclasses.dataclass
class Tally:
    """How runs of one kind of fault ended. A run counts in the columns that apply to it."""
    kind: str
    runs: int = 0
    named: int = 0  # runs in which every rank that had to named the fault in time
    completed: int = 0  # runs that went on to the right result
    failed: int = 0  # runs that failed as they must or may
    hung: int = 0
    problems: int = 0  # runs that did not end as they must

    def add(self, other):
        for name in ("runs", "named", "completed", "failed", "hung", "problems"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def tell(self):
        print(PREFIX + json.dumps(dataclasses.asdict(self)), flush=True)


def heard(output):
    """The tallies that a test told."""
    lines = [line for line in output.splitlines() if line.startswith(PREFIX)]
    return [Tally(**json.loads(line[len(PREFIX):])) for line in lines]


def table(tallies):
    """In Markdown."""
    lines = ["| fault | runs | named in time | completed | failed as required | hung | problems |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    lines += [f"| {one.kind} | {one.runs} | {one.named} | {one.completed} | {one.failed} | {one.hung} "
              f"| {one.problems} |" for one in tallies]
    return "\n".join(lines)
