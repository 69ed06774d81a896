# SPDX-License-Identifier: Apache-2.0
"""Jobs of `tutti bench`, which compares every output with a reference, for the tests of algorithms."""

import json
import unittest

from run_tool import run_tool

TIMEOUT_S = 120
# Odd numbers of bytes, so that the last chunks of a block are short or empty.
SIZES = ["--min", 37, "--max", 151552, "--factor", 64, "--iters", 2, "--repeat", 1]


class CheckedBench(unittest.TestCase):
    TOOL = ""  # the program sets the path of `tutti`

    def tutti(self, *arguments, code=0):
        """The output of `tutti`, which must end with this exit code; of a failure, its errors, too."""
        result = run_tool(self.TOOL, *arguments, timeout=TIMEOUT_S)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}{result.stdout}")
        return result.stdout if code == 0 else result.stdout + result.stderr

    def check(self, ran, collective, ranks, *arguments):
        """Runs the collective in three sizes: every output is right, and of a candidate whose name begins with `ran`, a
        text or a tuple of texts."""
        command = ["bench", collective, "--ranks", ranks, "--threads", "--type", "int8", "--json", *SIZES, *arguments]
        document = json.loads(self.tutti(*command))
        self.assertEqual(document["wrong"], 0, command)
        self.assertEqual(len(document["results"]), 3)
        for row in document["results"]:
            runs = ["wrong"] if collective == "all_to_all" else ["wrong", "in_place_wrong"]  # it never runs in place
            self.assertEqual([row[run] for run in runs], [0] * len(runs))
            self.assertTrue(row["ran"].startswith(ran), row["ran"])
