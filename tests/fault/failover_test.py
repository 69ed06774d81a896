#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts links of a job whose connections fail over (net.failover), between two hosts (network namespaces).

The hub uses rail0. The data uses rail1 and rail2: two devices of the network socket, or the networks socket and ucx.

- If one of the two links goes down or drops all packets in the middle of an all_reduce, the call completes, and every
  element is right. Each rank that sends reports the fail-over once. The other link carries the remaining data.
- If both links stay down, both ranks fail within the deadline, and an error names both links.
- With --cuts N: N runs with two cuts at random times, in calls one after the other. The first link comes up again
  before the second link is cut. Each call must complete, and every element must be right.

Needs root; exits with 77 without.

Run as: failover_test.py PATH_OF_TUTTI [--size SIZE] (default 1G) [--networks socket|socket,ucx] [--cuts N]
"""

import argparse
import pathlib
import random
import re
import secrets
import sys
import time
import unittest

import large_cut_test as large
from tally import Tally

ARGS = None
COUNTS = {"cuts": 0, "fail-overs": 0}  # of random cuts
LONGEST_CUT_S = 10
NETWORKS = {"socket": ["network=socket", "settings.net.socket.interface=[=rail1,=rail2]"],
            "socket,ucx": ["network=[socket,ucx]", "settings.net.socket.interface=[=rail1]",
                           "settings.net.ucx.devices=[rail2]", "settings.net.ucx.interface=rail2",
                           "settings.net.ucx.transports=[tcp]"]}
BY = r"(network '\w+', from rank \d \([^)]*\) to rank \d \([^)]*\))"
FAIL_OVER = re.compile(rf"warn (?:\d/2 )?fail-over: {BY} goes on by {BY};")


class FailOver(large.Call):
    def begin(self, iterations=1):
        self.start((1, 2), settings=(*NETWORKS[ARGS.networks], "net.failover=true"),
                   iterations=iterations)

    def survive(self, cut):
        self.begin()
        self.cut_in_the_middle(cut)
        cut_at = time.monotonic()
        outputs = self.both_complete()
        changes = []
        for rank, out in enumerate(outputs):
            found = FAIL_OVER.findall(out)
            self.assertEqual(len(found), len(set(found)), f"rank {rank} reports a fail-over twice: {out}")
            changes += found
        self.assertTrue(changes, outputs)
        counted = re.search(r"# (\d+) fail-over\(s\) of connections, \d+ message\(s\) sent again", outputs[0])
        self.assertTrue(counted, outputs[0])
        self.assertGreaterEqual(int(counted[1]), len(changes), outputs)
        for before, after in changes:
            self.assertIn("rail1", before)
            self.assertIn("rail2" if ARGS.networks == "socket" else "network 'ucx'", after)
        print(f"the call ended {time.monotonic() - cut_at:.1f} s after the cut", file=sys.stderr)

    def test_one_link_goes_down(self):
        self.survive(lambda: self.switch("down"))

    def test_one_link_goes_silent(self):
        self.survive(self.swallow)

    def test_both_links_go_down(self):
        self.begin()
        self.cut_in_the_middle(lambda: self.switch("down", (1, 2)))
        ends = self.ends(4 * (large.PEER_LOSS_S + 1) + large.TOLD_S + large.LOST_S)
        for code, out in ends:
            self.assertGreater(code, 0, out)
        text = "".join(out for _, out in ends)
        self.assertRegex(text, r"no network reaches rank \d any more: network 'socket', from .*rail1.*; network '" +
                         ("socket', from .*rail2" if ARGS.networks == "socket" else "ucx', from "))
        large.COUNTS["failed"] += 1
        large.COUNTS["named"] += 1


class RandomCuts(large.Call):
    def test_random_cuts(self):
        for number in range(ARGS.cuts):
            with self.subTest(number):
                self.one(number)
                self.doCleanups()

    def one(self, number):
        """Two cuts: one link, and after it is up again, the other. Each cut is silent, or takes the link down."""
        first = random.choice((1, 2))
        plan = [(first, random.random() < 0.5, random.uniform(0, 2), random.uniform(1, LONGEST_CUT_S)),
                (3 - first, random.random() < 0.5, random.uniform(0, 2), 0)]
        self.start((1, 2), settings=(*NETWORKS[ARGS.networks], "net.failover=true"), iterations=ARGS.iterations)
        deadline = time.monotonic() + large.END_S
        while self.sent() < ARGS.bytes // 8:
            self.assertLess(time.monotonic(), deadline, "the calls do not begin")
        started = time.monotonic()
        told = []
        for link, silent, after_s, lasts_s in plan:
            time.sleep(after_s)  # the random time of the cut
            if any(rank.poll() is not None for rank in self.ranks):
                break
            self.swallow(link) if silent else self.switch("down", (link,))
            COUNTS["cuts"] += 1
            told.append(f"rail{link} {'silent' if silent else 'down'} at {time.monotonic() - started:.2f} s" +
                        (f" for {lasts_s:.2f} s" if lasts_s else ""))
            if lasts_s:
                time.sleep(lasts_s)  # the length of the cut
                self.let_through(link) if silent else self.switch("up", (link,))
        outputs = self.both_complete()
        changes = sum(len(FAIL_OVER.findall(out)) for out in outputs)
        COUNTS["fail-overs"] += changes
        print(f"run {number}: {', '.join(told)}; {changes} fail-overs, ended after {time.monotonic() - started:.1f} s, "
              "exact", file=sys.stderr, flush=True)


def main():
    global ARGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--size", default="1G", help="such as 256M or 1G (default 1G)")
    parser.add_argument("--networks", choices=list(NETWORKS), default="socket")
    parser.add_argument("--cuts", type=int, default=0, help="runs with cuts at random times, and nothing else")
    parser.add_argument("--iterations", type=int, default=40, help="with --cuts: calls of a run")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    ARGS = large.ARGS = parser.parse_args()
    ARGS.bytes = large.size_bytes(ARGS.size)
    large.hosts.isolate()
    large.hosts.require_links()
    random.seed(ARGS.seed)
    print(f"seed {ARGS.seed}", file=sys.stderr)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(RandomCuts if ARGS.cuts else FailOver)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    problems = len(result.failures) + len(result.errors)
    if ARGS.cuts:
        print(f"{COUNTS['cuts']} cuts, {COUNTS['fail-overs']} fail-overs", file=sys.stderr)
    Tally("link cut with fail-over", ARGS.cuts or result.testsRun, **large.COUNTS, problems=problems).tell()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
