#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives over net-ucx between two hosts (network namespaces). Needs root; exits with 77 without.

matrix_test runs every collective with half of its ranks on each host, and `tutti bench` runs a process per rank. Each
run has a deadline: a hang is a failure.

Run as: ucx_hosts_test.py PATH_OF_TUTTI PATH_OF_MATRIX_TEST [PART_OF_A_NAME]
"""

import os
import pathlib
import random
import secrets
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rails_test as rails  # noqa: E402
from hosts import bridges_work, make_cluster  # noqa: E402

MATRIX_LIMIT_S = 150
LINK_LIMIT_S = 10
BENCH_LIMIT_S = 30
REFUSAL_LIMIT_S = 15
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
TUTTI = MATRIX = ""


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TUTTI_", "UCX_"))}
    return kept | more


class Hosts(unittest.TestCase):
    def setUp(self):
        self.hosts = rails.make_hosts(self.addCleanup)
        self.await_links()

    def await_links(self, rail_count=2):
        """UCX omits links that are not up yet."""
        deadline = time.monotonic() + LINK_LIMIT_S
        for host, rail in ((host, rail) for host in self.hosts for rail in range(rail_count)):
            while "state UP" not in rails.ip("-n", host, "link", "show", f"rail{rail}").stdout:
                self.assertLess(time.monotonic(), deadline, f"rail{rail} of {host} does not come up")

    def sent(self, host, rail):
        file = f"/sys/class/net/rail{rail}/statistics/tx_bytes"
        return int(rails.ip("netns", "exec", host, "cat", file).stdout)

    def matrix(self, *arguments, **settings):
        files = ",".join(f"/run/netns/{host}" for host in self.hosts)
        pairs = {"network": "ucx", "bootstrap.interface": "[=rail0]"}
        pairs |= {f"settings.net.ucx.{key}": value for key, value in settings.items()}
        command = ["ip", "netns", "exec", self.hosts[0], MATRIX, "--namespaces", files, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=MATRIX_LIMIT_S, check=False,
                             env=environment(TUTTI_SET=";".join(f"{key}={value}" for key, value in pairs.items())))
        self.assertEqual(ran.returncode, 0, ran.stdout[-3000:] + ran.stderr[-3000:])
        print(ran.stdout.splitlines()[-1], file=sys.stderr)

    def bench(self, collective, rank_count, limit_s, *settings):
        """(exit code, output) of each rank: a process, by turns on the first and the second host."""
        meeting = f"10.213.0.1:41999:{secrets.token_hex(16)}"
        ranks = []
        for rank in range(rank_count):
            command = ["ip", "netns", "exec", self.hosts[rank % 2], TUTTI, "bench", collective, "--ranks",
                       str(rank_count), "--rank", str(rank), "--min", "8", "--max", "1M", "--factor", "64", "--iters",
                       "3", "--repeat", "1", "--set", "network=ucx", "--set", f"host={self.hosts[rank % 2]}-{rank}",
                       "--set", "bootstrap.interface=[=rail0]", *(part for one in settings for part in ("--set", one))]
            ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                          env=environment(TUTTI_ID=meeting)))
        end = time.monotonic() + limit_s
        outputs = []
        try:
            for rank in ranks:
                text, _ = rank.communicate(timeout=max(0.1, end - time.monotonic()))
                outputs.append((rank.returncode, text))
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
        return outputs

    def test_all_collectives(self):
        self.matrix("--seed", str(random.randrange(1, 1 << 30)), "--ranks", "2,4,8", "--max-count", "4097")
        self.assertGreater(min(self.sent(host, 0) + self.sent(host, 1) for host in self.hosts), 1 << 20)

    def test_all_collectives_of_sixteen_ranks_on_four_hosts(self):
        if not bridges_work():
            self.skipTest("the kernel makes no bridges")
        self.hosts = make_cluster(self.addCleanup, 4)
        self.await_links(rail_count=1)
        # All communicators of a run stay open, and 16 ranks of UCX have many descriptors.
        for part in ("ring/simple", "tree/direct/ll", "direct/shifted/simple", "direct/one-shot/ll", "hier/"):
            self.matrix("--seed", str(random.randrange(1, 1 << 30)), "--ranks", "16", "--max-count", "1000", "--filter",
                        part)
        self.assertGreater(min(self.sent(host, 0) for host in self.hosts), 1 << 18)

    def test_one_device(self):
        before = [self.sent(host, 0) for host in self.hosts]
        self.matrix("--seed", str(random.randrange(1, 1 << 30)), "--ranks", "3", "--max-count", "4097",
                    devices="[rail1]", interface="rail1", transports="[tcp]")
        for host, least in zip(self.hosts, before):
            self.assertGreater(self.sent(host, 1), 3 * (self.sent(host, 0) - least))

    def test_a_process_per_rank(self):
        for number, collective in enumerate(COLLECTIVES):
            outputs = self.bench(collective, 2 if number % 2 else 4, BENCH_LIMIT_S)
            for code, text in outputs:
                self.assertEqual(code, 0, text)
            self.assertIn("net-ucx", outputs[0][1])
            self.assertIn("wrong 0", outputs[0][1])

    def test_shared_memory_between_namespaces_is_refused(self):
        for setting in ("transports=[sm]", "devices=[lo]"):
            for code, text in self.bench("all_reduce", 2, REFUSAL_LIMIT_S, f"settings.net.ucx.{setting}",
                                         "settings.net.ucx.interface=rail0"):
                self.assertEqual(code, 1, text)
                self.assertRegex(text, r"network 'ucx' cannot connect .*10\.213\.0\.\d:\d+ to 10\.213\.0\.\d:\d+")
                self.assertIn("different network namespaces", text)

    def test_an_unreachable_device_is_told(self):
        """The line gets through on rail0. UCX may use rail1 alone, which has no route to the other host."""
        rails.ip("-n", self.hosts[1], "address", "delete", "10.213.1.2/24", "dev", "rail1")
        rails.ip("-n", self.hosts[1], "address", "add", "10.213.1.3/32", "dev", "rail1")
        rails.ip("-n", self.hosts[0], "route", "add", "unreachable", "10.213.1.3")
        for code, text in self.bench("all_reduce", 2, REFUSAL_LIMIT_S, "settings.net.ucx.devices=[rail1]",
                                     "settings.net.ucx.interface=rail0", "settings.net.ucx.silence=1s"):
            self.assertEqual(code, 1, text)
            self.assertRegex(text, r"network 'ucx' cannot connect .*10\.213\.0\.\d:\d+ to 10\.213\.0\.\d:\d+")
            self.assertIn("settings.net.ucx.devices", text)


def main():
    global TUTTI, MATRIX
    if rails.ISOLATED not in os.environ:
        rails.isolate()
    TUTTI, MATRIX = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
    if not rails.links_work():
        rails.skip("needs network namespaces with veth links")
    part = sys.argv[3] if len(sys.argv) > 3 else ""
    names = [name for name in unittest.defaultTestLoader.getTestCaseNames(Hosts) if part in name]
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(Hosts(name) for name in names))
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
