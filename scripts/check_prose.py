#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts patterns that make prose hard to read, in pages, comments and docstrings, and limits them.

check_prose.py            checks the groups: pages (README.md and docs), headers (core/include), sources (all other C,
                          C++ and CUDA files), scripts (Python, shell, CMake)
check_prose.py FILE...    names each finding of the files by line, and prints their rates

headless   `what, who, whoever, whatever` as subject or object without a noun         at most 1 in 1,000 words
vague      `one` as a pronoun, `ones, those, such, these, others, another, likewise`  at most 5 in 1,000 words
starts     sentences that begin with `Of, Until, Where, What, Who, That, Likewise`    at most 1 in 1,000 words
long       sentences of more than 30 words                                            at most 7 % of the sentences
"""

import pathlib
import re
import sys

from sources import CODE, ROOT, files, report

AFTER_ONE = "that|which|who|whose|is|has|does|do|can|must|may|will|for|in|at|on|to|with|from|by|after|before|than"
WORDS = {
    "headless": re.compile(r"\b(what|who|whoever|whatever|whom)\b", re.I),
    "vague": re.compile(r"\b(ones|those|such|these|others|another|likewise)\b|"
                        rf"\bone\b(?=\s*(?:[,.;:)]|(?:{AFTER_ONE})\b))", re.I),
}
START = re.compile(r"(of|until|where|what|who|likewise|nor|that)\b", re.I)
LONG = 30
LIMITS = {"headless": 1, "vague": 5, "starts": 1, "long": 7}
HASH = {".py", ".sh", ".cmake", ".txt"}  # suffixes of files with comments after "#"
COMMENT = re.compile(r"\s*//[/!]?<?\s?(.*)")
HASH_COMMENT = re.compile(r"\s*#(?!!)\s?(.*)")
DOCSTRING = re.compile(r'^[ ]*r?"""(.*?)"""', re.S | re.M)
TRAILING = re.compile(r"//[/!]?<\s?(.*)")


def page_parts(text):
    """(line, text) of the paragraphs, headings and list entries of a page, without code and tables."""
    text = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), text, flags=re.S)
    part = []
    for number, line in enumerate(text.splitlines() + [""], 1):
        apart = not line.strip() or line.startswith(("    ", "|"))
        if part and (apart or re.match(r"\s*(#+|[-*]|\d+\.)\s", line)):
            yield part[0][0], " ".join(words for _, words in part)
            part = []
        if not apart:
            part.append((number, re.sub(r"\]\([^)]*\)", "]", re.sub(r"^\s*(#+|[-*]|\d+\.)\s+", "", line))))


def hash_parts(text):
    """(line, text) of the comments on lines of their own and of the docstrings of a script."""
    block, first = [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        match = HASH_COMMENT.match(line)
        if match:
            first = first if block else number
            block.append(match[1])
        elif block:
            yield first, " ".join(block)
            block = []
    for match in DOCSTRING.finditer(text):
        for part in re.split(r"\n\s*\n", match[1]):
            yield text.count("\n", 0, match.start()) + 1, " ".join(part.split())


def comment_parts(text):
    """(line, text) of the comments of a source."""
    block, first = [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        match = COMMENT.match(line)
        if match:
            first = first if block else number
            block.append(match[1])
            continue
        if block:
            yield first, " ".join(block)
            block = []
        trailing = TRAILING.search(line)
        if trailing:
            yield number, trailing[1]
    for match in re.finditer(r"/\*(.*?)\*/", text, flags=re.S):
        yield text.count("\n", 0, match.start()) + 1, re.sub(r"\s*\n\s*\*?\s*", " ", match[1])


def parts(path, text):
    """(line, text) of the prose of one file."""
    if path.suffix == ".md":
        return page_parts(text)
    return hash_parts(text) if path.suffix in HASH else comment_parts(text)


def findings(path, text):
    """(words, sentences, [(line, kind, sentence)]) of one file."""
    words = sentences = 0
    found = []
    for line, part in parts(path, text):
        if "SPDX" in part:
            continue
        for sentence in re.split(r"(?<=[.!?;])\s+", re.sub(r"`[^`]*`", "CODE", part.strip())):
            found += [(line, kind, sentence) for kind, word in WORDS.items() for _ in word.finditer(sentence)]
            length = len(sentence.split())
            if length <= 2:
                continue
            words, sentences = words + length, sentences + 1
            found += [(line, "starts", sentence)] if START.match(sentence) else []
            found += [(line, "long", sentence)] if length > LONG else []
    return words, sentences, found


def rates(results):
    """The rates of several files together, in the units of LIMITS."""
    words = max(sum(result[0] for result in results), 1)
    sentences = max(sum(result[1] for result in results), 1)
    count = {kind: sum(entry[1] == kind for result in results for entry in result[2]) for kind in LIMITS}
    return {kind: 100 * count[kind] / sentences if kind == "long" else 1000 * count[kind] / words for kind in LIMITS}


def group_of(path):
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md":
        return "pages" if name == "README.md" or name.startswith("docs/") else None
    if path.suffix in HASH:
        return "scripts" if path.suffix != ".txt" or path.name == "CMakeLists.txt" else None
    return "headers" if name.startswith("core/include/") else "sources"


def group_problems():
    groups = {"pages": [], "headers": [], "sources": [], "scripts": []}
    for path in files(CODE | HASH | {".inc", ".in", ".md"}):
        group = group_of(path)
        if group:
            groups[group].append((path, findings(path, path.read_text(encoding="utf-8"))))
    for group, results in groups.items():
        for kind, rate in rates([result for _, result in results]).items():
            if rate <= LIMITS[kind]:
                continue
            worst = sorted(results, key=lambda entry: -sum(found[1] == kind for found in entry[1][2]))[:3]
            unit = "% of sentences" if kind == "long" else "in 1,000 words"
            yield (f"{group}: {kind} {rate:.1f} {unit}, at most {LIMITS[kind]}; most in "
                   f"{', '.join(str(path.relative_to(ROOT)) for path, _ in worst)}; "
                   "scripts/check_prose.py FILE names them")


def show(paths):
    results = [(path, findings(path, path.read_text(encoding="utf-8"))) for path in paths]
    for path, (_, _, found) in results:
        for line, kind, sentence in found:
            print(f"{path}:{line}: {kind}: {sentence}")
    print(", ".join(f"{kind} {rate:.1f}" for kind, rate in rates([result for _, result in results]).items()))


def self_test():
    cases = {"a.md": ("# Title\n\nIt says what runs. Others wait.\n\n    what\n\n`what` is code.\n",
                      ["headless", "vague"]),
             "b.cpp": ("// Of a chunk, the part that is left.\nint what;  ///< one of those of a rank\n",
                       ["starts", "vague"]),
             "c.h": ("/* Whatever it\n * holds. */\n// SPDX-License-Identifier: what\nauto a = \"what\";\n",
                     ["headless"]),
             "d.md": ("word " * 31 + ".\n\n- word word word\n- word\n  what\n", ["long", "headless"]),
             "f.py": ('#!/usr/bin/what\n# Of a rank.\n"""What it does."""\nwhat = "who"\n',
                      ["headless", "starts", "starts"]),
             "e.cpp": ("// The slots of one peer. Another one is free.\n", ["vague", "vague"])}
    for name, (text, kinds) in cases.items():
        found = findings(pathlib.Path(name), text)[2]
        assert sorted(entry[1] for entry in found) == sorted(kinds), (name, found)
    assert findings(pathlib.Path("a.md"), "\n\nThe one\nthat who\n")[2][0][0] == 3
    expected = {"headless": 0, "vague": .5, "starts": 0, "long": 10}
    assert rates([(2000, 10, [(1, "vague", ""), (1, "long", "")])]) == expected
    assert group_of(ROOT / "core/include/tutti/types.h") == "headers" and group_of(ROOT / "docs/x.md") == "pages"


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    elif len(sys.argv) > 1:
        show(map(pathlib.Path, sys.argv[1:]))
    else:
        sys.exit(report(list(group_problems()), "prose"))
