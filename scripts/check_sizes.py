#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the size budgets: 600 lines a file, 80 a function (120 a kernel), 120 columns a line.

Functions are found by universal-ctags; without it they are not checked, and the check says so.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile

from sources import CODE, ROOT, files, report

FILE_LINES = 600
FUNCTION_LINES = 80
KERNEL_LINES = 120
COLUMNS = 120
KERNEL = re.compile(r"__global__")


def line_problems(path, lines):
    if len(lines) > FILE_LINES:
        yield f"{path}:{len(lines)}: file has {len(lines)} lines, at most {FILE_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"{path}:{number}: line has {len(line)} columns, at most {COLUMNS}"


def functions(paths):
    """(path, name, first line, last line) of every function that is defined in the files."""
    command = ["ctags", "--output-format=json", "--fields=+ne", "--kinds-C=f", "--kinds-C++=f", "--kinds-Python=fm",
               "--map-C++=+.cu", "--map-C++=+.cuh", "--map-C++=+.h", "-f", "-", "-L", "-"]
    names = "\n".join(map(str, paths))
    result = subprocess.run(command, input=names, capture_output=True, text=True, check=True)
    for tag in map(json.loads, result.stdout.splitlines()):
        if "end" in tag:
            yield tag["path"], tag["name"], tag["line"], tag["end"]


def function_problems(lines_of):
    for path, name, first, last in functions(lines_of):
        head = "\n".join(lines_of[path][max(first - 3, 0):first])
        most = KERNEL_LINES if KERNEL.search(head) else FUNCTION_LINES
        if last - first + 1 > most:
            yield f"{path}:{first}: function {name} has {last - first + 1} lines, at most {most}"


def problems(paths):
    lines_of = {str(path): path.read_text(encoding="utf-8").splitlines() for path in paths}
    found = [problem for path, lines in lines_of.items() for problem in line_problems(path, lines)]
    if shutil.which("ctags"):
        found += function_problems(lines_of)
    else:
        print("universal-ctags is not installed: function lengths are not checked (./dev setup --all)", file=sys.stderr)
    return sorted(problem.removeprefix(f"{ROOT}/") for problem in found)


def self_test():
    long_function = "{head} {{\n" + "  step();\n" * 90 + "}}\n"
    cases = {"good.cpp": ("void f() {\n}\n", 0), "columns.cpp": ("// " + "x" * 118 + "\n", 1),
             "lines.cpp": ("//\n" * 601, 1), "function.cpp": (long_function.format(head="void f()"), 1),
             "kernel.cu": (long_function.format(head="__global__ void f()"), 0)}
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, count) in cases.items():
            file = ROOT.__class__(folder) / name
            file.write_text(text)
            found = problems([file])
            assert len(found) == count or not shutil.which("ctags"), (name, found)


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        sys.exit(report(problems(files(CODE | {".py", ".cmake", ".sh"})), "sizes"))
