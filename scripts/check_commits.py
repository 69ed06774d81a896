#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks subjects of commits against CONTRIBUTING.md: `area: imperative`, at most 60 characters, then an empty line.

check_commits.py [RANGE]            commits of a range; default: the latest (HEAD^!)
check_commits.py --message FILE     a message before its commit, as the hook commit-msg of Git passes it
Merges and reverts have the subjects that Git gives them.
"""

import pathlib
import re
import subprocess
import sys

from sources import ROOT, report

SUBJECT = re.compile(r"[a-z][\w./+-]*(, [a-z][\w./+-]*)*: [^\s.A-Z][^A-Z\s]*")
MOST = 60
GIVEN = re.compile(r"(Merge|Revert|fixup!|squash!) ?")
# Words that begin no order: past tenses and articles, as subjects of this project had them.
NO_ORDER = re.compile(r": (\w+ed|the|an?|no|nobody|when|where|if) ", re.I)


def faults(message):
    """The faults of one message, as texts."""
    subject, *rest = message.splitlines() or [""]
    if GIVEN.match(subject):
        return
    if not SUBJECT.match(subject):
        yield f"'{subject}' is not of the form 'area: imperative' in lower case"
    elif NO_ORDER.search(subject):
        yield f"'{subject}' is no order; begin with a verb: 'area: add ...'"
    if len(subject) > MOST:
        yield f"'{subject}' has {len(subject)} characters, at most {MOST}"
    if subject.endswith("."):
        yield f"'{subject}' ends with a full stop"
    if rest and rest[0]:
        yield f"'{subject}' is not followed by an empty line"


def messages(commits):
    """(name, message) of the commits of a range; nothing where this is no clone."""
    log = subprocess.run(["git", "log", "--no-merges", "--format=%h%x00%B%x01", commits], cwd=ROOT, capture_output=True,
                         text=True)
    for entry in log.stdout.split("\x01"):
        name, _, message = entry.strip().partition("\0")
        if name:
            yield name, message


def self_test():
    good = ["plan: add strands", "docs, tools: explain exit codes\n\nBecause.", "Merge branch 'main'",
            "net-socket: keep 2 streams"]
    bad = ["Add strands", "plan: Add strands", "plan: " + "x" * 60, "plan: add strands.", "plan: add\nmore",
           "plan: the strands run", "plan: added strands", ""]
    assert not any(list(faults(message)) for message in good), [list(faults(message)) for message in good]
    assert all(list(faults(message)) for message in bad), [message for message in bad if not list(faults(message))]


def main(arguments):
    if arguments[:1] == ["--self-test"]:
        return self_test()
    if arguments[:1] == ["--message"]:
        text = pathlib.Path(arguments[1]).read_text(encoding="utf-8")
        found = [("message", re.sub(r"^#.*\n?", "", text, flags=re.M))]
    else:
        found = messages(arguments[0] if arguments else "HEAD^!")
    return report([f"{name}: {fault}" for name, message in found for fault in faults(message)], "commits")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
