# SPDX-License-Identifier: Apache-2.0
"""The project's own files, for the checks beside this file."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"}
FOLDERS = ["core", "plugins", "compat", "tools", "examples", "tests", "bench", "scripts", "cmake", "docs", ".ci"]


def files(suffixes, *folders):
    """Files with one of the suffixes under the folders (default: all), by path; files of the root too by default."""
    found = [] if folders else [p for p in ROOT.iterdir() if p.is_file() and p.suffix in suffixes]
    for folder in folders or FOLDERS:
        found += [p for p in (ROOT / folder).rglob("*") if p.suffix in suffixes and p.is_file()]
    return sorted(found)


def report(problems, checked):
    """Prints the offenders and returns the exit code."""
    for problem in problems:
        print(problem)
    print(f"{checked}: {len(problems)} problem{'s' if len(problems) != 1 else ''}")
    return 1 if problems else 0
