#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scratch memory and messages of several chunks: the algorithms of examples/algo-recursive run on 2 to 33 ranks.

`tutti bench` compares every output with a reference. Run as: recursive_test.py PATH_OF_TUTTI FOLDER_OF_THE_PLUGIN
[--few]. With --few, the large numbers of ranks are left out.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TIMEOUT_S = 120
TOPOLOGY = pathlib.Path(__file__).parents[2] / "configs/topologies/pcie-4gpu.yaml"
# Odd numbers of bytes, so that the last chunks of a block are short or empty.
SIZES = ["--min", 37, "--max", 151552, "--factor", 64, "--iters", 2, "--repeat", 1]


class Recursive(unittest.TestCase):
    def tutti(self, *arguments):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
        result = subprocess.run([TUTTI, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S,
                                env=environment, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}{result.stdout}")
        return result.stdout

    def run_variant(self, variant, ranks, protocol, *arguments):
        collective = "all_gather" if variant == "bruck" else "all_reduce"
        settings = [f"plugins.path=[{FOLDER}]", "plugins.algorithm=[ring, recursive]",
                    f"algorithm=recursive/{variant}", f"protocol={protocol}"]
        command = ["bench", collective, "--ranks", ranks, "--threads", "--type", "int8", "--json", *SIZES,
                   *arguments, *[word for setting in settings for word in ("--set", setting)]]
        document = json.loads(self.tutti(*command))
        self.assertEqual(document["wrong"], 0, command)
        self.assertEqual(len(document["results"]), 3)
        for row in document["results"]:
            self.assertEqual((row["wrong"], row["in_place_wrong"]), (0, 0))
            self.assertTrue(row["ran"].startswith(f"recursive/{variant}/{protocol}/"), row["ran"])

    def test_bruck_and_halving(self):
        for ranks in range(2, 10 if FEW else 34):
            for variant in ("bruck", "halving"):
                with self.subTest(f"{variant}, {ranks} ranks"):
                    self.run_variant(variant, ranks, "ll" if ranks % 2 == 0 else "simple")

    def test_hierarchical(self):
        for ranks, hosts in ((2, "a"), (3, "a,b"), (5, "a,b"), (8, "a,b"), (9, "a,b,c"), (33, "a,b,c,d")):
            with self.subTest(f"{ranks} ranks on {hosts}"):
                self.run_variant("hierarchical", ranks, "simple", "--hosts", hosts)

    def test_small_slots(self):
        """Large messages take several slots, and small slots make many loops."""
        for variant in ("bruck", "halving", "hierarchical"):
            for protocol in ("simple", "ll"):
                with self.subTest(f"{variant}, {protocol}"):
                    self.run_variant(variant, 7, protocol, "--set", "shm.slot_size=512", "--set", "shm.slots=4")

    def test_as_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for variant, collective in (("bruck", "all_gather"), ("halving", "all_reduce")):
                name = f"{folder}/{variant}.yaml"
                self.tutti("plan", "export", collective, "--algorithm", f"{FOLDER}/tutti-algo-recursive.so/{variant}",
                           "--ranks", 6, "-o", name)
                self.tutti("plan", "verify", name, "--slots", 1)
                document = json.loads(self.tutti("bench", collective, "--ranks", 6, "--threads", "--json", *SIZES,
                                                 "--set", f"algorithm={name}"))
                self.assertEqual(document["wrong"], 0)
                self.assertTrue(all(row["ran"].startswith(name) for row in document["results"]), document["results"])

    def test_kernels_decline_with_a_reason(self):
        text = self.tutti("explain", "all_reduce", "--topology", TOPOLOGY, "--set", f"plugins.path=[{FOLDER}]", "--set",
                          "plugins.algorithm=[ring, recursive]")
        reason = "needs a scratch buffer; this back end runs none"
        self.assertRegex(text, rf"(?m)^  recursive/halving × simple +excluded: {reason}$")

    def test_premultiplied_sums(self):
        self.run_variant("halving", 6, "simple", "--op", "premul_sum")
        self.run_variant("halving", 6, "ll", "--op", "avg")


if __name__ == "__main__":
    TUTTI, FOLDER = sys.argv[1:3]
    del sys.argv[1:3]
    FEW = "--few" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--few"]
    unittest.main()
