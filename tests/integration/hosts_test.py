#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives over net-socket between two hosts (network namespaces): over a plain link, IPv6, a link that delays and
loses frames, and a slow link; and the choice of the interface. Needs root; exits with 77 without.

Run as: hosts_test.py PATH_OF_TUTTI PATH_OF_MATRIX_TEST [--long] [--only PART_OF_A_NAME] [--seed S]
With --long: more ranks, and more and larger cases.
"""

import argparse
import json
import os
import pathlib
import random
import secrets
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import hosts  # noqa: E402
import lossy_link  # noqa: E402

ARGS = None
MATRIX_TIMEOUT_S = 900
PREFIX = "fd00:213:0:0"
LIMIT_MBIT = 400


def clean_environment(**more):
    return {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")} | more


class Hosts(unittest.TestCase):
    def matrix(self, names, *arguments, **settings):
        """Runs matrix_test with half of the ranks on each host."""
        files = ",".join(f"/run/netns/{name}" for name in names)
        pairs = {"network": "socket", "settings.net.socket.interface": "[=rail0]", "bootstrap.interface": "[=rail0]"}
        pairs |= {key.replace("__", "."): value for key, value in settings.items()}
        environment = clean_environment(TUTTI_SET=";".join(f"{key}={value}" for key, value in pairs.items()))
        command = hosts.within(names[0], ARGS.matrix_test, "--namespaces", files, "--seed", str(ARGS.seed), *arguments)
        ran = subprocess.run(command, capture_output=True, text=True, timeout=MATRIX_TIMEOUT_S, check=False,
                             env=environment)
        self.assertEqual(ran.returncode, 0, ran.stdout[-3000:] + ran.stderr[-3000:])
        print("\n".join(ran.stdout.splitlines()[-1:]), file=sys.stderr)

    def bench(self, names, meeting, *arguments):
        """An all_reduce of a rank on each host; the results in JSON."""
        environment = clean_environment(TUTTI_ID=f"{meeting}:{secrets.token_hex(16)}")
        ranks = []
        for rank, name in enumerate(names):
            command = [ARGS.tutti, "bench", "all_reduce", "--ranks", "2", "--rank", str(rank), "--set", f"host={name}",
                       "--repeat", "1", "--in-place", "no", *arguments, *(["--json"] if rank == 0 else [])]
            ranks.append(subprocess.Popen(hosts.within(name, *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True, env=environment))
        outputs = [rank.communicate(timeout=hosts.TIMEOUT_S) for rank in ranks]
        for rank, (out, errors) in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, out + errors)
        return json.loads(outputs[0][0])

    def sent(self, name, device):
        file = f"/sys/class/net/{device}/statistics/tx_bytes"
        return int(subprocess.run(hosts.within(name, "cat", file), capture_output=True, text=True, check=True).stdout)


class PlainLink(Hosts):
    def test_all_collectives(self):
        names = hosts.make_hosts(self.addCleanup, rails=1)
        ranks, count = ("2,3,4,5,8", "2000000") if ARGS.long else ("2,4,8", "70000")
        self.matrix(names, "--ranks", ranks, "--max-count", count)
        self.assertGreater(min(self.sent(name, "rail0") for name in names), 1 << 20)

    def test_all_collectives_over_ipv6(self):
        names = hosts.make_hosts(self.addCleanup, rails=1, prefix=PREFIX)
        self.matrix(names, "--ranks", "2,4", "--max-count", "4097")
        self.assertGreater(min(self.sent(name, "rail0") for name in names), 1 << 16)

    def test_all_collectives_over_two_streams(self):
        names = hosts.make_hosts(self.addCleanup, rails=1)
        self.matrix(names, "--ranks", "2,4", "--max-count", "70000", settings__net__socket__streams="2")


class FourHosts(Hosts):
    def test_all_collectives_of_sixteen_ranks(self):
        if not hosts.bridges_work():
            self.skipTest("the kernel makes no bridges")
        names = hosts.make_cluster(self.addCleanup, 4)
        self.matrix(names, "--ranks", "16", "--max-count", "70000" if ARGS.long else "1000")
        self.assertGreater(min(self.sent(name, "rail0") for name in names), 1 << 18)


class PoorLink(Hosts):
    def test_delay_and_loss(self):
        names, relay = lossy_link.make_hosts(self.addCleanup, (0.0002, 0.001), 0.01, ARGS.seed)
        ranks, count = ("2,4,8", "70000") if ARGS.long else ("2,4", "4097")
        self.matrix(names, "--ranks", ranks, "--max-count", count)
        carried, lost = relay.frames()
        print(f"{carried} frames carried, {lost} lost", file=sys.stderr)
        self.assertGreater(carried, 1000)
        self.assertGreater(lost, carried / 500)

    def test_limited_bandwidth(self):
        names = hosts.make_hosts(self.addCleanup, rails=1)
        for name in names:
            hosts.limit_rate(name, "rail0", LIMIT_MBIT / 1000)
        self.matrix(names, "--ranks", "2,4", "--max-count", "4097")
        rows = self.bench(names, "10.213.0.1:41999", "--min", "8M", "--max", "8M", "--iters", "2", "--set",
                          "settings.net.socket.interface=[=rail0]")["results"]
        least_us = (8 << 20) * 8 / LIMIT_MBIT
        self.assertGreater(rows[0]["time_us"], 0.9 * least_us, "the bandwidth was not limited")
        self.assertLess(rows[0]["time_us"], 3 * least_us)


class InterfaceChoice(Hosts):
    """Each case: the settings, and the rail that must carry the data."""

    def check(self, rail, *settings):
        names = hosts.make_hosts(self.addCleanup)
        arguments = [part for setting in settings for part in ("--set", f"settings.net.socket.{setting}")]
        self.bench(names, "10.213.0.1:41999", "--min", "4M", "--max", "4M", "--iters", "2", "--set",
                   "bootstrap.interface=[=rail0]", *arguments)
        sent = [self.sent(names[0], f"rail{one}") for one in (0, 1)]
        self.assertGreater(sent[rail], 8 << 20, sent)
        self.assertLess(sent[1 - rail], 1 << 20, sent)

    def test_exact_name(self):
        self.check(1, "interface=[=rail1]")

    def test_subnet(self):
        self.check(1, "interface=[10.213.1.0/24]")

    def test_exclusion(self):
        self.check(1, "interface=[^rail0]")

    def test_family(self):
        names = hosts.make_hosts(self.addCleanup)
        for number, name in enumerate(names, 1):
            hosts.set_address(name, number, "rail1", 1, PREFIX)  # rail0 has IPv4 only
        self.bench(names, "10.213.0.1:41999", "--min", "4M", "--max", "4M", "--iters", "2", "--set",
                   "bootstrap.interface=[=rail0]", "--set", "settings.net.socket.family=ipv6")
        sent = [self.sent(names[0], f"rail{one}") for one in (0, 1)]
        self.assertGreater(sent[1], 8 << 20, sent)
        self.assertLess(sent[0], 1 << 20, sent)


def main():
    global ARGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("matrix_test", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", default="", help="tests whose name has this part")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 30))
    ARGS = parser.parse_args()
    hosts.isolate()
    hosts.require_links()
    print(f"seed {ARGS.seed}", flush=True)
    suite = unittest.TestSuite()
    for case in (PlainLink, FourHosts, PoorLink, InterfaceChoice):
        names = unittest.defaultTestLoader.getTestCaseNames(case)
        suite.addTests(case(name) for name in names if ARGS.only in name)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
