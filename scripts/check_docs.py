#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every relative link of the documentation leads to a file and, if it names one, to a heading in it. No
long paragraph or table stands twice."""

import re
import sys
import tempfile

from sources import ROOT, files, report

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]*`")
LONG = 120  # characters of a paragraph that may stand only once


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def anchors(text):
    """The anchors that a renderer makes of the headings: lower case, punctuation dropped, spaces as hyphens."""
    headings = HEADING.findall(CODE_BLOCK.sub(blank, text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def paragraphs(text):
    """(line, words with one space between them) of each block between empty lines."""
    line = 1
    for part in re.split(r"(\n\s*\n)", text):
        if part.strip():
            yield line, " ".join(part.split())
        line += part.count("\n")


def repeats(paths):
    first = {}
    for path in paths:
        for line, words in paragraphs(path.read_text(encoding="utf-8")):
            if len(words) < LONG:
                continue
            if words in first:
                yield f"{path}:{line}: stands also at {first[words]}: {words[:40]} ..."
            first.setdefault(words, f"{path}:{line}".removeprefix(f"{ROOT}/"))


def problems(paths):
    paths = list(paths)
    yield from repeats(paths)
    for path in paths:
        text = CODE_SPAN.sub(blank, CODE_BLOCK.sub(blank, path.read_text(encoding="utf-8")))
        for match in LINK.finditer(text):
            if re.match(r"[a-z]+:", match[1]):
                continue
            name, _, anchor = match[1].partition("#")
            target = path.parent / name if name else path
            line = text.count("\n", 0, match.start()) + 1
            if not target.exists():
                yield f"{path}:{line}: {name} does not exist"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
                yield f"{path}:{line}: {name or 'this page'} has no heading #{anchor}"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        page = ROOT.__class__(folder) / "page.md"
        page.write_text("# One: `two`\n[a](#one-two) [b](page.md) [c](https://x.y) `[d](none.md)`\n")
        assert not list(problems([page])), list(problems([page]))
        page.write_text("# One\n[a](#two)\n[b](none.md)\n")
        assert len(list(problems([page]))) == 2
        paragraph = "A sentence of some words. " * 5
        page.write_text(f"# One\n\n{paragraph}\n\n# Two\n\n{paragraph.replace('. ', '.' + chr(10))}\n")
        found = list(problems([page]))
        assert len(found) == 1 and ":7: stands also at" in found[0], found
        page.write_text(f"# One\n\n{paragraph}\n\n{paragraph} And more.\n\nShort.\n\nShort.\n")
        assert not list(problems([page]))


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        sys.exit(report([problem.removeprefix(f"{ROOT}/") for problem in problems(files({".md"}))], "docs"))
