#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scratch memory and messages of several chunks: the algorithms of examples/algo-recursive run on 2 to 33 ranks.

`tutti bench` compares every output with a reference. Run as: recursive_test.py PATH_OF_TUTTI FOLDER_OF_THE_PLUGIN
[--few | --full]. With --few, the large numbers of ranks are left out. With --full, the hierarchical all-reduce runs on
every number of ranks.
"""

import json
import pathlib
import sys
import tempfile
import unittest

from checked_bench import SIZES, CheckedBench

TOPOLOGY = pathlib.Path(__file__).parents[2] / "configs/topologies/pcie-4gpu.yaml"


class Recursive(CheckedBench):
    def run_variant(self, variant, ranks, protocol, *arguments):
        collective = "all_gather" if variant == "bruck" else "all_reduce"
        settings = [f"plugins.path=[{FOLDER}]", "plugins.algorithm=[ring, recursive]",
                    f"algorithm=recursive/{variant}", f"protocol={protocol}"]
        self.check(f"recursive/{variant}/{protocol}/", collective, ranks, *arguments,
                   *[word for setting in settings for word in ("--set", setting)])

    def test_bruck_and_halving(self):
        for ranks in range(2, 10 if FEW else 34):
            for variant in ("bruck", "halving"):
                with self.subTest(f"{variant}, {ranks} ranks"):
                    self.run_variant(variant, ranks, "ll" if ranks % 2 == 0 else "simple")

    def test_hierarchical(self):
        for ranks in range(2, 34) if FULL else (2, 3, 5, 8, 9) if FEW else (2, 3, 5, 8, 9, 17, 33):
            hosts = ",".join("abcd"[:max(1, min(4, ranks // 2))])
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

    def test_kernels_run_them(self):
        for collective, variants in (("all_gather", ["bruck"]), ("all_reduce", ["halving", "hierarchical"])):
            for variant in variants:
                text = self.tutti("explain", collective, "--topology", TOPOLOGY, "--set", f"plugins.path=[{FOLDER}]",
                                  "--set", "plugins.algorithm=[ring, recursive]", "--set",
                                  f"algorithm=recursive/{variant}", "--set", "protocol=ll128")
                self.assertRegex(text, rf"(?m)^  recursive/{variant} × ll128 +.*chosen")

    def test_premultiplied_sums(self):
        self.run_variant("halving", 6, "simple", "--op", "premul_sum")
        self.run_variant("halving", 6, "ll", "--op", "avg")


if __name__ == "__main__":
    CheckedBench.TOOL, FOLDER = sys.argv[1:3]
    del sys.argv[1:3]
    FEW, FULL = "--few" in sys.argv, "--full" in sys.argv
    sys.argv = [word for word in sys.argv if word not in ("--few", "--full")]
    unittest.main()
