#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The algorithm `hier` on several hosts with equal numbers of ranks.

`tutti bench` compares every output with a reference. The hosts are names: ranks of different hosts reach each other by
TCP. Run as: hier_test.py PATH_OF_TUTTI
"""

import json
import pathlib
import sys
import unittest

from checked_bench import SIZES, CheckedBench

TOPOLOGY = pathlib.Path(__file__).resolve().parents[2] / "configs" / "topologies" / "hgx-h200.yaml"


class Hier(CheckedBench):
    def run_variant(self, collective, variant, hosts, ranks, *arguments):
        names = ",".join("abcdefgh"[:hosts])
        self.check(f"hier/{variant}/", collective, ranks, "--hosts", names, "--set", f"algorithm=hier/{variant}",
                   *arguments)

    def run_by_protocols(self, collective, variant, layouts):
        """`layouts`: numbers of hosts and ranks."""
        for hosts, ranks in layouts:
            for protocol in ("simple", "ll"):
                with self.subTest(f"{collective}, {ranks} ranks on {hosts} hosts, {protocol}"):
                    self.run_variant(collective, variant, hosts, ranks, "--set", f"protocol={protocol}")

    def test_exchange(self):
        for collective in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"):
            for hosts, ranks in ((2, 4), (2, 6), (3, 6), (4, 8)):
                with self.subTest(f"{collective}, {ranks} ranks on {hosts} hosts"):
                    root = ["--root", ranks - 1] if collective in ("broadcast", "reduce") else []
                    self.run_variant(collective, "exchange", hosts, ranks, *root)

    def test_all_to_all(self):
        self.run_by_protocols("all_to_all", "exchange", ((2, 4), (2, 6), (3, 6), (4, 8), (3, 9)))

    def test_ring(self):
        self.run_by_protocols("all_reduce", "ring", ((3, 6), (3, 9), (4, 8)))

    def test_doubling(self):
        for hosts, ranks in ((4, 4), (4, 8), (8, 8)):
            for collective in ("all_reduce", "reduce_scatter", "all_gather"):
                with self.subTest(f"{collective}, {ranks} ranks on {hosts} hosts"):
                    self.run_variant(collective, "doubling", hosts, ranks)

    def test_doubling_of_any_number_of_hosts(self):
        self.run_by_protocols("all_reduce", "doubling", ((3, 3), (3, 6), (7, 7)))

    def test_bruck(self):
        for collective in ("reduce_scatter", "all_gather"):
            self.run_by_protocols(collective, "bruck", ((3, 6), (5, 10), (7, 7)))

    def test_multiplying(self):
        self.run_by_protocols("all_reduce", "multiplying", ((5, 5), (5, 10), (8, 8)))

    def test_tree(self):
        self.run_by_protocols("all_reduce", "tree", ((3, 6), (3, 9), (5, 10)))

    def test_binomial(self):
        for collective in ("broadcast", "reduce"):
            for hosts, ranks in ((4, 4), (5, 10)):
                for root in (0, ranks - 1, ranks // 2):
                    with self.subTest(f"{collective}, {ranks} ranks on {hosts} hosts, root {root}"):
                        self.run_variant(collective, "binomial", hosts, ranks, "--root", root)

    def test_small_slots(self):
        """Large messages take several slots, and small slots make many loops."""
        small = ["--set", "shm.slot_size=512", "--set", "shm.slots=4"]
        for variant in ("exchange", "ring", "doubling", "tree"):
            with self.subTest(variant):
                self.run_variant("all_reduce", variant, 3, 6, *small)
        for collective in ("all_gather", "reduce_scatter"):
            with self.subTest(f"{collective}, bruck"):
                self.run_variant(collective, "bruck", 5, 5, *small, "--set", "net.slot_size=512")
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

    def test_uneven_hosts_use_other_algorithms(self):
        for collective in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"):
            for hosts, ranks in (("a,b", 3), ("a,b,c", 5)):
                with self.subTest(f"{collective}, {ranks} ranks on {hosts}"):
                    self.check(("direct/", "ring/", "tree/"), collective, ranks, "--hosts", hosts)

    def test_plans_that_are_too_large_for_a_proof_are_excluded(self):
        call = ("explain", "all_gather", "--size", "64K", "--topology", TOPOLOGY, "--nodes", 256, "--set",
                "topology.host_ranks=gpu")
        shown = self.tutti(*call)
        self.assertRegex(shown, r"hier/doubling × simple +excluded: its plan cannot be proved on 2048 ranks "
                                r"\(check.plans\): an exact proof handles up to \d+ ")
        self.assertRegex(shown, r"ring × \w+ +chosen: ")
        self.assertRegex(self.tutti(*call, "--set", "check.plans=false"), r"hier/\w+ × \w+ +chosen: ")

    def test_messages_that_are_longer_than_a_connection_are_excluded(self):
        """A slot of LL has 512 bytes between hosts, and each chunk begins at a multiple of 64 bytes."""
        shown = self.tutti("explain", "all_to_all", "--size", "64K", "--topology", TOPOLOGY, "--nodes", 32, "--set",
                           "topology.host_ranks=gpu", "--set", "check.plans=false")
        self.assertRegex(shown, r"hier/bruck × ll +excluded: a message of 128 chunks takes \d+ slots, and a connection "
                                r"has \d+\n")
        self.assertNotRegex(shown, r"hier/bruck × simple +excluded")


if __name__ == "__main__":
    CheckedBench.TOOL = sys.argv.pop(1)
    unittest.main(verbosity=2)
