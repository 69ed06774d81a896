# SPDX-License-Identifier: Apache-2.0
"""The quotes of the documentation: code blocks, code in a line, commands with their outputs."""

import dataclasses
import difflib
import re
import textwrap

ANY_LINES = "..."
# Figures that differ from run to run: times, sizes of a process in memory, ratios of times.
MEASURED = r"µs|ms|s|MiB|times"
# Figures that only a measurement or a prediction changes; figures of a described machine are exact.
MEASURED_RATES = MEASURED + r"|GB/s|%"


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive indented lines of a page, without their indentation."""
    page: str
    line: int
    lines: tuple

    @property
    def text(self):
        return "\n".join(self.lines)

    @property
    def place(self):
        return f"{self.page}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Quote:
    """A command and the output that a page quotes for it; None if it quotes none."""
    place: str
    command: str
    output: tuple | None


def blocks(page, text):
    """The indented code blocks of a page in Markdown: four spaces or more after a blank line."""
    found, lines = [], text.splitlines()
    start = None
    for number, line in enumerate([*lines, "end"]):
        indented = line.startswith("    ")
        if start is None and indented and (number == 0 or not lines[number - 1].strip()):
            start = number
        elif start is not None and line.strip() and not indented:
            dedented = textwrap.dedent("\n".join(lines[start:number])).rstrip().splitlines()
            found.append(Block(page, start + 1, tuple(dedented)))
            start = None
    return found


def spans(page, text):
    """(place, code) of the code between backticks, outside of code blocks."""
    inside = {block.line + offset for block in blocks(page, text) for offset in range(len(block.lines))}
    for number, line in enumerate(text.splitlines(), 1):
        if number not in inside:
            yield from ((f"{page}:{number}", code) for code in re.findall(r"`([^`]+)`", line))


def is_session(block):
    return any(line.startswith("$ ") for line in block.lines)


def session_quotes(block):
    """The quotes of a block whose commands begin with `$ `; a backslash continues a command."""
    lines = list(block.lines)
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        first = start
        command = lines[first].removeprefix("$ ")
        while command.endswith("\\"):
            first += 1
            command = command[:-1] + lines[first].strip()
        yield Quote(f"{block.page}:{block.line + start}", command, tuple(without_blank_end(lines[first + 1:end])))


def command_quotes(block):
    """The quotes of a block that has one command on each line."""
    for offset, line in enumerate(block.lines):
        if line.strip():
            yield Quote(f"{block.page}:{block.line + offset}", line.strip(), None)


def without_blank_end(lines):
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def normal(line, measured):
    """The line with one space for each run of blanks and # for each measured figure."""
    figure = rf"(?<![\w.])\d+(?:\.\d+)?(?= ?(?:{measured})(?!\w))"
    return re.sub(r"\s+", " ", re.sub(figure, "#", line)).rstrip()


def difference(quoted, actual, measured=MEASURED):
    """A unified diff between the quoted lines and the actual lines, empty if they fit."""
    quoted, actual = without_blank_end(quoted), without_blank_end(actual)
    patterns = []
    for line in quoted:
        escaped = re.escape(normal(line, measured))
        patterns.append(r"(?:.*\n)*?" if line.strip() == ANY_LINES else escaped.replace(r"\.\.\.", ".*") + r"\n")
    text = "".join(normal(line, measured) + "\n" for line in actual)
    if re.fullmatch("".join(patterns), text):
        return ""
    return "\n".join(difflib.unified_diff(quoted, actual, "quoted", "actual", lineterm="", n=100))


def missing_part(lines, files):
    """The first part of the quoted code, between lines `...`, that no file contains; None if each is there."""
    texts = [[line.strip() for line in text.splitlines() if line.strip()] for text in files]
    part = []
    for line in [*lines, ANY_LINES]:
        if line.strip() != ANY_LINES:
            part += [line.strip()] if line.strip() else []
            continue
        found = any(text[at:at + len(part)] == part for text in texts for at in range(len(text)))
        if part and not found:
            return "\n".join(part)
        part = []
    return None
