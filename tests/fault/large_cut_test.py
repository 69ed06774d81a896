#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the data's link down in the middle of one large all_reduce between two hosts (network namespaces).

- The link comes up again within timeouts.peer_loss: the call completes, and every element is right.
- The link stays down: both ranks fail within the deadline, and each error names both ends and their links.
- With two rails (settings.net.socket.rails), the call completes although one link stays down, or drops all packets
  without a sign. Each rank reports the lost rail once. If both links come up again in time, no rail is lost. If both
  stay down, both ranks fail, and each error names both ends of both rails.

The cut is made when the link has carried a part of the call's data. Needs root; exits with 77 without.

With --cuts N, the program makes N calls instead, each over two rails. One of the two links goes down or drops all
packets, at a random part of the call's data. Each call must complete.

Run as: large_cut_test.py PATH_OF_TUTTI [--size SIZE] (default 1G) [--only one|two] [--cuts N [--seed S]]
"""

import argparse
import os
import pathlib
import random
import re
import secrets
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import hosts  # noqa: E402
from tally import Tally  # noqa: E402

ARGS = None
COUNTS = {"named": 0, "completed": 0, "failed": 0, "hung": 0}  # of runs, for the tally
PEER_LOSS_S = 3
LOST_S = 2 * PEER_LOSS_S + 1  # the silence after which net-socket calls a connection lost
TOLD_S = 2 + 6  # the hub is asked first; then all ranks are told, and end
END_S = 100  # without data, of a run that goes on, on a busy machine
MOVES_BYTES = 1 << 20  # more than a connection without messages sends meanwhile
BOTH_ENDS = re.compile(r"from rank \d \(host \S+, rail1\) to rank \d \(host \S+, rail1\): "
                       r"(10\.213\.1\.\d:\d+ to )?10\.213\.1\.\d:\d+")


def size_bytes(text):
    units = {"M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]]


class Call(unittest.TestCase):
    def start(self, data_links=(1,), settings=None, iterations=1):
        """A rank on each host. The hub uses rail0, the data the other links. `settings`: of the networks."""
        self.links = data_links
        self.names = hosts.make_hosts(self.addCleanup, rails=1 + len(data_links))
        self.wait_for_links(0, *data_links)
        interfaces = ",".join(f"=rail{link}" for link in data_links)
        settings = settings or (f"settings.net.socket.interface=[{interfaces}]",
                                f"settings.net.socket.rails={len(data_links)}")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        environment["TUTTI_ID"] = f"10.213.0.1:41999:{secrets.token_hex(16)}"
        self.ranks = []
        for rank, name in enumerate(self.names):
            command = [ARGS.tutti, "bench", "all_reduce", "--ranks", "2", "--rank", str(rank), "--min", ARGS.size,
                       "--max", ARGS.size, "--iters", str(iterations), "--repeat", "1", "--in-place", "only",
                       "--set", f"host={name}", "--set", "bootstrap.interface=[=rail0]",
                       "--set", f"timeouts.peer_loss={PEER_LOSS_S}s",
                       *(part for setting in settings for part in ("--set", setting))]
            process = subprocess.Popen(hosts.within(name, *command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True, env=environment)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            self.ranks.append(process)

    def wait_for_links(self, *links):
        """UCX omits links that are not up yet."""
        deadline = time.monotonic() + END_S
        for name, link in ((name, link) for name in self.names for link in links):
            while "state UP" not in hosts.ip("-n", name, "link", "show", f"rail{link}").stdout:
                self.assertLess(time.monotonic(), deadline, f"rail{link} of {name} does not come up")

    def sent(self):
        files = [f"/sys/class/net/rail{link}/statistics/tx_bytes" for link in self.links]
        out = subprocess.run(hosts.within(self.names[0], "cat", *files), capture_output=True, text=True, check=True)
        return sum(int(line) for line in out.stdout.split())

    def switch(self, state, links=(1,)):
        for link in links:
            hosts.ip("-n", self.names[0], "link", "set", f"rail{link}", state)

    def swallow(self, link=1):
        """From now on, the link drops all packets, but stays up: they go to a device that is not there."""
        for number, name in enumerate(self.names, 1):
            hosts.ip("-n", name, "neighbour", "replace", f"10.213.{link}.{3 - number}", "lladdr", "02:00:00:00:00:01",
                     "dev", f"rail{link}", "nud", "permanent")

    def let_through(self, link=1):
        """Ends swallow()."""
        for number, name in enumerate(self.names, 1):
            hosts.ip("-n", name, "neighbour", "del", f"10.213.{link}.{3 - number}", "dev", f"rail{link}")

    def cut_in_the_middle(self, cut=None, part=1 / 8):
        deadline = time.monotonic() + END_S
        while self.sent() < ARGS.bytes * part:
            self.assertLess(time.monotonic(), deadline, "the call does not begin")
            if any(rank.poll() is not None for rank in self.ranks):
                self.fail(f"a rank has ended: {self.ends(END_S)}")
        (cut or (lambda: self.switch("down")))()
        self.at_cut = self.sent()
        self.assertLess(self.at_cut, ARGS.bytes * 31 // 32, "the cut came too late")

    def ends(self, within_s, moving=False):
        """[(exit code, output)] of both ranks, which must end in time. `moving`: the time begins again with each MiB
        that host 0 sends, as a busy machine may move data slowly."""
        deadline = time.monotonic() + within_s
        seen = self.sent()
        outputs = []
        while len(outputs) < len(self.ranks):
            rank = self.ranks[len(outputs)]
            try:
                out, _ = rank.communicate(timeout=min(1, max(0.1, deadline - time.monotonic())))
                outputs.append((rank.returncode, out))
            except subprocess.TimeoutExpired:
                if moving and (sent := self.sent()) >= seen + MOVES_BYTES:
                    deadline, seen = time.monotonic() + within_s, sent
                if time.monotonic() > deadline:
                    self.hung(len(outputs), within_s, "data last moved" if moving else "the link's last change")
        return outputs

    def hung(self, number, within_s, since):
        COUNTS["hung"] += 1
        for rank in self.ranks:
            rank.kill()
        texts = "\n".join(rank.communicate(timeout=TOLD_S)[0] for rank in self.ranks[number:])
        self.fail(f"rank {number} has not ended {within_s:.0f} s after {since}; the ranks said:\n{texts}")

    def both_complete(self):
        ends = self.ends(END_S, moving=True)
        self.assertEqual([code for code, _ in ends], [0, 0], ends)
        self.assertRegex(ends[0][1], r"wrong 0\b", "rank 0 prints the count of wrong elements")
        COUNTS["completed"] += 1
        return [out for _, out in ends]

    def both_fail(self):
        for code, out in self.ends(1.5 * LOST_S + TOLD_S):
            self.assertGreater(code, 0, out)
            self.assertRegex(out, BOTH_ENDS)
            for link in self.links:
                self.assertRegex(out, rf"10\.213\.{link}\.\d:\d+.*: no sign of the other host")
        COUNTS["failed"] += 1
        COUNTS["named"] += 1


class OneRail(Call):
    def test_a_short_cut(self):
        self.start()
        self.cut_in_the_middle()
        time.sleep(PEER_LOSS_S * 0.6)  # this is the length of the cut
        self.assertEqual([rank.poll() for rank in self.ranks], [None, None])
        self.switch("up")
        self.both_complete()

    def test_a_cut_without_end(self):
        self.start()
        self.cut_in_the_middle()
        cut_at = time.monotonic()
        self.both_fail()
        print(f"both ranks failed {time.monotonic() - cut_at:.1f} s after the cut", file=sys.stderr)


class TwoRails(Call):
    def complete_without_rail1(self, cut, reason):
        """Each rank reports the rail once, with both ends; one of them for this reason. The time from cut to end."""
        self.start((1, 2))
        self.cut_in_the_middle(cut)
        cut_at = time.monotonic()
        outputs = self.both_complete()
        for out in outputs:
            lost = re.findall(r"warn (?:\d/2 )?net.socket the rail (.*) is lost: (.*); its data goes on over 1 of 2 "
                              r"rails", out)
            self.assertEqual(len(lost), 1, out)
            self.assertRegex(lost[0][0], r"^10\.213\.1\.\d:\d+ \(rail1\) to 10\.213\.1\.\d:\d+ \(rail1\)$")
        self.assertRegex("".join(outputs), reason)
        print(f"the call ended {time.monotonic() - cut_at:.1f} s after the cut", file=sys.stderr)
        return time.monotonic() - cut_at

    def test_one_link_goes_down(self):
        self.complete_without_rail1(lambda: self.switch("down"), "the interface rail1 has no link")

    def test_one_link_goes_silent(self):
        took_s = self.complete_without_rail1(self.swallow, "no sign of the other host")
        self.assertLess(took_s, 1.5 * (PEER_LOSS_S + 1) + 1 + END_S / 2, "the rail's silence is noticed late")

    def test_a_short_cut_of_both_links(self):
        self.start((1, 2))
        self.cut_in_the_middle(lambda: self.switch("down", (1, 2)))
        time.sleep(PEER_LOSS_S * 0.6)  # this is the length of the cut
        self.assertEqual([rank.poll() for rank in self.ranks], [None, None])
        self.switch("up", (1, 2))
        self.both_complete()

    def test_a_cut_of_both_links_without_end(self):
        self.start((1, 2))
        self.cut_in_the_middle(lambda: self.switch("down", (1, 2)))
        self.both_fail()


class RandomCuts(Call):
    def test_the_call_completes(self):
        link, silent, part = ARGS.random.choice((1, 2)), ARGS.random.random() < 0.5, ARGS.random.uniform(0.01, 0.8)
        print(f"rail{link} {'drops all packets' if silent else 'goes down'} at {part:.0%}", file=sys.stderr)
        self.start((1, 2))
        self.cut_in_the_middle((lambda: self.swallow(link)) if silent else (lambda: self.switch("down", (link,))), part)
        for out in self.both_complete():
            self.assertEqual(len(re.findall(rf"the rail .*\(rail{link}\) is lost: ", out)), 1, out)


def main():
    global ARGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--size", default="1G", help="such as 256M or 1G (default 1G)")
    parser.add_argument("--only", choices=("one", "two"), help="runs the tests of one rail, or of two rails")
    parser.add_argument("--cuts", type=int, metavar="N", help="makes N calls with a cut of one rail of two")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 30), help="of the cuts")
    ARGS = parser.parse_args()
    ARGS.random = random.Random(ARGS.seed)
    ARGS.bytes = size_bytes(ARGS.size)
    hosts.isolate()
    hosts.require_links()
    loader = unittest.defaultTestLoader
    cases = {"one": OneRail, "two": TwoRails}
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for name, case in cases.items()
                               if ARGS.only in (None, name))
    if ARGS.cuts:
        print(f"seed {ARGS.seed}", flush=True)
        suite = unittest.TestSuite(RandomCuts("test_the_call_completes") for _ in range(ARGS.cuts))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    problems = len(result.failures) + len(result.errors)
    Tally("link cut in a large call", result.testsRun, **COUNTS, problems=problems).tell()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
