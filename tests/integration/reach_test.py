#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ring, tree, two-shot and all-to-all on 2 to 33 ranks of the host. `tutti bench` compares every output.

Run as: reach_test.py PATH_OF_TUTTI [--full]. With --full, every number of ranks up to 33, and 256 ranks.
"""

import json
import pathlib
import sys
import tempfile
import unittest

from checked_bench import CheckedBench

FEW = [2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33]
# One job runs three algorithms: each row of its table is in the range of another rule.
RULES = """rules:
  - match: {collective: all_reduce, max_size: 1KiB}
    choose: {algorithm: tree}
  - match: {collective: all_reduce, max_size: 8KiB}
    choose: {algorithm: direct/two-shot}
  - match: {collective: all_reduce}
    choose: {algorithm: ring}
"""


class Reach(CheckedBench):
    def rows(self, collective, ranks, *arguments):
        command = ["bench", collective, "--ranks", ranks, "--threads", "--type", "int8", "--iters", 1, "--repeat", 1,
                   "--json", *arguments]
        document = json.loads(self.tutti(*command))
        self.assertEqual((document["ranks"], document["wrong"]), (ranks, 0))
        return document["results"]

    def test_all_reduces(self):
        with tempfile.TemporaryDirectory() as folder:
            rules = pathlib.Path(folder) / "rules.yaml"
            rules.write_text(RULES)
            for ranks in range(2, 34) if FULL else FEW:
                with self.subTest(ranks=ranks):
                    rows = self.rows("all_reduce", ranks, "--min", 237, "--max", 47000, "--factor", 14, "--config",
                                     rules)
                    for row, ran in zip(rows, ("tree/", "direct/two-shot/", "ring/"), strict=True):
                        self.assertTrue(row["ran"].startswith(ran), row["ran"])
                        self.assertEqual((row["wrong"], row["in_place_wrong"]), (0, 0))

    def test_all_to_all(self):
        for ranks in range(2, 34) if FULL else FEW:
            with self.subTest(ranks=ranks):
                row, = self.rows("all_to_all", ranks, "--min", 501 * ranks, "--max", 501 * ranks)
                self.assertTrue(row["ran"].startswith("direct/"), row["ran"])
                self.assertEqual((row["count"], row["wrong"]), (501, 0))

    def test_256_ranks_as_threads(self):
        if not FULL:
            self.skipTest("takes a minute on two cores: --full")
        row, = self.rows("all_reduce", 256, "--min", 1001, "--max", 1001, "--set", "algorithm=tree", "--set",
                         "shm.slot_size=1024", "--set", "shm.slots=4")
        self.assertTrue(row["ran"].startswith("tree/"), row["ran"])
        self.assertEqual((row["wrong"], row["in_place_wrong"]), (0, 0))


if __name__ == "__main__":
    CheckedBench.TOOL = sys.argv.pop(1)
    FULL = "--full" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--full"]
    unittest.main()
