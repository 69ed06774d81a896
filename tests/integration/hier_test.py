#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The algorithm `hier` on several hosts with equal numbers of ranks.

`tutti bench` compares every output with a reference. The hosts are names: ranks of different hosts reach each other by
TCP. Run as: hier_test.py PATH_OF_TUTTI
"""

import json
import sys
import unittest

from checked_bench import SIZES, CheckedBench


class Hier(CheckedBench):
    def run_variant(self, collective, variant, hosts, ranks, *arguments):
        names = ",".join("abcdefgh"[:hosts])
        self.check(f"hier/{variant}/", collective, ranks, "--hosts", names, "--set", f"algorithm=hier/{variant}",
                   *arguments)

    def test_exchange(self):
        for collective in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"):
            for hosts, ranks in ((2, 4), (2, 6), (3, 6), (4, 8)):
                with self.subTest(f"{collective}, {ranks} ranks on {hosts} hosts"):
                    root = ["--root", ranks - 1] if collective in ("broadcast", "reduce") else []
                    self.run_variant(collective, "exchange", hosts, ranks, *root)

    def test_all_to_all(self):
        for hosts, ranks in ((2, 4), (2, 6), (3, 6), (4, 8), (3, 9)):
            for protocol in ("simple", "ll"):
                with self.subTest(f"{ranks} ranks on {hosts} hosts, {protocol}"):
                    self.run_variant("all_to_all", "exchange", hosts, ranks, "--set", f"protocol={protocol}")

    def test_ring(self):
        for hosts, ranks in ((3, 6), (3, 9), (4, 8)):
            for protocol in ("simple", "ll"):
                with self.subTest(f"{ranks} ranks on {hosts} hosts, {protocol}"):
                    self.run_variant("all_reduce", "ring", hosts, ranks, "--set", f"protocol={protocol}")

    def test_doubling(self):
        for hosts, ranks in ((4, 4), (4, 8), (8, 8)):
            for collective in ("all_reduce", "reduce_scatter", "all_gather"):
                with self.subTest(f"{collective}, {ranks} ranks on {hosts} hosts"):
                    self.run_variant(collective, "doubling", hosts, ranks)

    def test_small_slots(self):
        """Large messages take several slots, and small slots make many loops."""
        small = ["--set", "shm.slot_size=512", "--set", "shm.slots=4"]
        for variant in ("exchange", "ring"):
            with self.subTest(variant):
                self.run_variant("all_reduce", variant, 3, 6, *small)
        with self.subTest("all_to_all"):
            self.run_variant("all_to_all", "exchange", 3, 6, *small, "--set", "net.slot_size=512")

    def test_small_calls_take_it(self):
        """A direct exchange sends two messages of each rank to the other host."""
        for collective in ("all_reduce", "all_gather", "all_to_all"):
            document = json.loads(self.tutti("bench", collective, "--ranks", 4, "--threads", "--hosts", "a,b", "--min",
                                             8, "--max", 8, "--iters", 2, "--repeat", 1, "--json"))
            self.assertTrue(document["results"][0]["ran"].startswith("hier/"), document["results"][0]["ran"])

    def test_uneven_hosts_decline_with_a_reason(self):
        text = self.tutti("bench", "all_reduce", "--ranks", 3, "--hosts", "a,b", *SIZES, "--set", "algorithm=hier",
                          code=1)
        self.assertIn("a hierarchy needs machines with equal numbers of ranks", text)


if __name__ == "__main__":
    CheckedBench.TOOL = sys.argv.pop(1)
    unittest.main(verbosity=2)
