#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
r"""Checks that each term has one meaning: no word of the table "Words that are not used" of docs/glossary.md occurs.

Each row of the table is one rule: | `word` | replacement | places | reason |. The word is a regular expression that
must match whole words in any case; it writes "|" as "\|", as tables of Markdown demand. Places are:
  pages        README.md, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md and docs/, without code
  comments     comments of C, C++ and CUDA sources, without code in backticks
  identifiers  names in C, C++ and CUDA sources, word by word: `read_lanes` and `ReadLanes` both have the word "lanes"
The table grows: if the code obeys a further rule, add the row.
"""

import pathlib
import re
import sys

from check_prose import comment_parts, page_parts
from sources import CODE, ROOT, files, report

GLOSSARY = ROOT / "docs/glossary.md"
HEADING = "## Words that are not used"
PLACES = {"pages", "comments", "identifiers"}
LITERAL_OR_COMMENT = re.compile(r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
                                r"|//[^\n]*|/\*(?:.|\n)*?\*/|#\s*include[^\n]*")
NAME = re.compile(r"[A-Za-z_]\w*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def rules(text):
    """(pattern, replacement, places) of each row of the glossary's table; raises ValueError for a row that is wrong."""
    found = []
    for line in text.partition(HEADING)[2].splitlines():
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if not line.startswith("| `"):
            continue
        if len(cells) != 4 or not re.fullmatch(r"`[^`]+`", cells[0]):
            raise ValueError(f"this row is not '| `word` | replacement | places | reason |': {line}")
        places = set(re.split(r",\s*", cells[2]))
        if not places <= PLACES:
            raise ValueError(f"places are {', '.join(sorted(PLACES))}, not '{cells[2]}'")
        found.append((re.compile(rf"\b(?:{cells[0][1:-1]})\b", re.I), cells[1], places))
    if not found:
        raise ValueError(f"no rule stands under '{HEADING}'")
    return found


def identifiers(text):
    """(line, words) of the names in code: each name as its words, with spaces between."""
    blank = LITERAL_OR_COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for number, line in enumerate(blank.splitlines(), 1):
        for name in NAME.findall(line):
            yield number, " ".join(PART.findall(name)).lower()


def problems(path, text, table):
    if path.suffix == ".md":
        places = {"pages": list(page_parts(text))}
    else:
        places = {"comments": list(comment_parts(text)), "identifiers": list(identifiers(text))}
    for place, parts in places.items():
        patterns = [(pattern, use) for pattern, use, where in table if place in where]
        for line, part in parts if patterns else []:
            part = re.sub(r"`[^`]*`", "CODE", part)
            for pattern, use in patterns:
                for match in pattern.finditer(part):
                    yield f"{path}:{line}: '{match[0]}' ({place}): use {use}; docs/glossary.md gives the reason"


def checked(path):
    name = path.relative_to(ROOT).as_posix()
    return path != GLOSSARY and (path.suffix != ".md" or "/" not in name or name.startswith("docs/"))


def self_test():
    table = rules(f"{HEADING}\n\n| word | use | places | reason |\n|---|---|---|---|\n"
                  "| `lanes?\\|lans` | stripe | pages, comments | CUDA |\n"
                  "| `gates?` | mbarrier | identifiers | CUDA |\n")
    cases = {"a.md": ("A lane.\n\n    code of a lane\n\n`lane`\n", 1), "b.cpp": ("// Lanes\nint lane; // gate\n", 1),
             "c.h": ('GateList my_gates("gate");\nint investigate;\n#include "gate.h"\n', 2)}
    for name, (text, count) in cases.items():
        found = list(problems(pathlib.Path(name), text, table))
        assert len(found) == count, (name, found)
    for row in ("| `a` | b | pages |", "| `a` | b | page | c |", ""):
        try:
            rules(f"{HEADING}\n{row}\n")
            raise AssertionError(row)
        except ValueError:
            pass


def main():
    table = rules(GLOSSARY.read_text(encoding="utf-8"))
    found = [problem.removeprefix(f"{ROOT}/") for path in files(CODE | {".inc", ".in", ".md"}) if checked(path)
             for problem in problems(path, path.read_text(encoding="utf-8"), table)]
    return report(found, "words")


if __name__ == "__main__":
    sys.exit(self_test() if "--self-test" in sys.argv else main())
