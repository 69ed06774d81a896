#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts the links between two hosts (network namespaces) in the middle of a run. Needs root; exits with 77 without.

A job has two ranks on each host. The hub uses one link (rail0), the data the second link (rail1). A cut that is shorter
than timeouts.peer_loss must not be noticed: the run completes with the right result. After a longer cut the run
completes or fails by a deadline, and after a cut without end all ranks fail. If only the data's link is cut, each
rank names both ends of a connection. No run may hang.

Run as: cut_test.py PATH_OF_TUTTI [--long N [--parallel J] [--peer-loss S] [--seed S]]
With --long: N cuts of 1 s to 15 s at random times, and a table.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import secrets
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import rails_test as rails  # noqa: E402
from tally import Tally  # noqa: E402

ENDLESS = float("inf")
ENDLESS_ITERATIONS = 10_000_000
BOTH_ENDS = re.compile(r"from rank \d \(host \S+, rail1\) to rank \d \(host \S+, rail1\): "
                       r"(10\.213\.1\.\d:\d+ to )?10\.213\.1\.\d:\d+")
RAILS = {"data": (1,), "hub": (0,), "both": (0, 1)}


@dataclasses.dataclass
class Cut:
    which: str  # of RAILS
    how: str  # "down": the link goes down; "loss": the link stays up and drops every packet
    after_s: float  # from the first line of the table; with in_start, from the start of the ranks
    lasts_s: float
    peer_loss_s: float
    setting: tuple = ()
    in_start: bool = False

    def limit_s(self):
        """The silence after which a connection is lost, with the time to judge it and to tell all ranks."""
        return 1.5 * (2 * self.peer_loss_s + 1) + 2 + 6

    def __str__(self):
        lasts = "for ever" if self.lasts_s == ENDLESS else f"for {self.lasts_s:.1f} s"
        since = "the start" if self.in_start else "the table's head"
        return (f"{self.which} {self.how} {self.after_s:.2f} s after {since} {lasts}, peer_loss {self.peer_loss_s} s"
                f"{' ' + ' '.join(self.setting) if self.setting else ''}")


@dataclasses.dataclass
class Outcome:
    cut: Cut
    kind: str  # "completed", "failed", "hung"
    problem: str  # empty: as it must be
    took_s: float  # from the cut to the end of the last rank
    errors: list
    missed: bool  # the run was over before the cut
    lasted_s: float  # the cut, as measured


def switch(hosts, cut, begins):
    for rail in RAILS[cut.which]:
        for host in hosts:
            if cut.how == "loss":
                rails.ip("netns", "exec", host, "tc", "qdisc", *(["add"] if begins else ["delete"]), "dev",
                         f"rail{rail}", "root", *(["netem", "loss", "100%"] if begins else []))
            elif host == hosts[0]:
                rails.ip("-n", host, "link", "set", f"rail{rail}", "down" if begins else "up")


def start(hosts, cut, iterations):
    meeting = f"10.213.0.1:41999:{secrets.token_hex(16)}"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")} | {"TUTTI_ID": meeting}
    iterations = ENDLESS_ITERATIONS if cut.lasts_s == ENDLESS else iterations
    ranks = []
    for rank in range(4):
        host = hosts[rank // 2]
        command = ["ip", "netns", "exec", host, rails.TUTTI, "bench", "all_reduce", "--ranks", "4", "--rank", str(rank),
                   "--min", "64K", "--max", "64K", "--iters", str(iterations), "--repeat", "1",
                   "--in-place", "no", "--set", f"host={host}", "--set", "bootstrap.interface=[=rail0]",
                   "--set", "settings.net.socket.interface=[=rail1]",
                   "--set", f"timeouts.peer_loss={cut.peer_loss_s:g}s",
                   *(part for pair in cut.setting for part in ("--set", pair))]
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                                      env=environment))
    return ranks


def wait_for_table(rank):
    """Returns once rank has printed the head of its table, which follows the communicator, or has ended."""
    while line := rank.stdout.readline():  # unbuffered, so that communicate() gets all that follows
        if line.startswith(b"#") and b"algbw" in line:
            return


def wait_all(ranks, deadline):
    """True when all have ended before the deadline."""
    for rank in ranks:
        try:
            rank.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
    return True


def judge(cut, lasted_s, ranks, ended, errors, missed):
    """The events of a cut, and its failure. On a busy machine a cut may last longer than it should."""
    codes = [rank.returncode for rank in ranks]
    short = lasted_s < cut.peer_loss_s
    if not ended:
        return "hung", "hangs"
    if all(code == 0 for code in codes):
        wrong = [out for out in errors if re.search(r"wrong [1-9]", out)]
        if wrong:
            return "completed", f"wrong data: {wrong}"
        return "completed", "completes in spite of the cut" if cut.lasts_s == ENDLESS and not missed else ""
    if short or missed:
        return "failed", "fails before the cut" if missed else "fails although the cut is shorter than peer_loss"
    if any(code <= 0 for code in codes):
        return "failed", f"ranks end with {codes}"
    if cut.which == "data" and cut.lasts_s == ENDLESS and not all(BOTH_ENDS.search(text) for text in errors):
        return "failed", "a rank does not name both ends"
    return "failed", ""


def run(cut, iterations=4000):
    undo = []
    try:
        hosts = rails.make_hosts(lambda *call, **options: undo.append((call, options)))
        ranks = start(hosts, cut, iterations)
        if not cut.in_start:
            wait_for_table(ranks[0])
        started = time.monotonic()
        missed = wait_all(ranks, started + cut.after_s)
        cut_at = time.monotonic()
        lasted = ENDLESS
        switch(hosts, cut, True)
        lasting = cut.limit_s() if cut.lasts_s == ENDLESS else cut.lasts_s
        ended = wait_all(ranks, cut_at + lasting)
        if not ended and cut.lasts_s != ENDLESS:
            time.sleep(max(0.0, cut_at + cut.lasts_s - time.monotonic()))
            switch(hosts, cut, False)
            lasted = time.monotonic() - cut_at
            # A run that continues needs its time, and on a busy machine more than a run that is alone.
            ended = wait_all(ranks, time.monotonic() + cut.limit_s() + 60)
        took = time.monotonic() - cut_at
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
        texts = [b" ".join(rank.communicate()).decode() for rank in ranks]
        kind, problem = judge(cut, lasted, ranks, ended, texts, missed)
        return Outcome(cut, kind, problem, took, texts, missed, lasted)
    finally:
        for call, options in reversed(undo):
            call[0](*call[1:], **options)


def quick_cuts():
    """Each takes seconds, and they mostly wait."""
    cuts = []
    for which in RAILS:
        for how in HOWS:
            cuts.append(Cut(which, how, 0.8 + random.random(), 1.6, 2))
        cuts.append(Cut(which, random.choice(HOWS), 0.8 + random.random() / 2, ENDLESS, 2))
    cuts.append(Cut("data", HOWS[0], random.random() / 2, 1.6, 2, in_start=True))
    return cuts


def long_cuts(count, peer_loss_s):
    settings = ((), ("algorithm=ring",), ("protocol=simple",), ("channels=2",))
    return [Cut(random.choice(list(RAILS)), random.choice(HOWS), random.uniform(0, 4), random.uniform(1, 15),
                peer_loss_s, random.choice(settings), in_start=True) for _ in range(count)]


def can_lose():
    """Whether the kernel has netem."""
    hosts, undo = [], []
    try:
        hosts = rails.make_hosts(lambda *call, **options: undo.append((call, options)))
        switch(hosts, Cut("data", "loss", 0, 0, 1), True)
        return True
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False
    finally:
        for call, options in reversed(undo):
            call[0](*call[1:], **options)


def table(outcomes):
    groups = collections.OrderedDict()
    for one in outcomes:
        short = "shorter than peer_loss" if one.lasted_s < one.cut.peer_loss_s else "longer"
        groups.setdefault((one.cut.which, short), []).append(one)
    lines = ["| links cut | cut | runs | completed | failed | hung | slowest failure (s) | not as it must be |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    for (which, short), group in sorted(groups.items()):
        kinds = collections.Counter(one.kind for one in group)
        slowest = max((one.took_s for one in group if one.kind == "failed"), default=0)
        lines.append(f"| {which} | {short} | {len(group)} | {kinds['completed']} | {kinds['failed']} | {kinds['hung']} "
                     f"| {slowest:.1f} | {sum(1 for one in group if one.problem)} |")
    return "\n".join(lines)


def main():
    global HOWS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti")
    parser.add_argument("--long", type=int, default=0, metavar="N")
    parser.add_argument("--parallel", type=int, default=0, metavar="J")
    parser.add_argument("--peer-loss", type=float, default=5)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--only", choices=list(RAILS))
    parser.add_argument("--verbose", action="store_true", help="what the ranks print")
    options = parser.parse_args()
    if rails.ISOLATED not in os.environ:
        rails.isolate()
    rails.TUTTI = str(pathlib.Path(options.tutti).resolve())
    if not rails.links_work():
        rails.skip("needs network namespaces with veth links")
    HOWS = ["down", "loss"] if can_lose() else ["down"]
    random.seed(options.seed)
    print(f"seed {options.seed}, cuts by {HOWS}", flush=True)
    cuts = long_cuts(options.long, options.peer_loss) if options.long else quick_cuts()
    if options.only:
        cuts = [cut for cut in cuts if cut.which == options.only]
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(options.parallel or (6 if options.long else 4)) as pool:
        for outcome in pool.map(run, cuts):
            outcomes.append(outcome)
            verdict = f"FAILED ({outcome.problem})" if outcome.problem else "ok"
            print(f"{verdict}: {outcome.cut}: {outcome.kind}{' before the cut' if outcome.missed else ''} "
                  f"{outcome.took_s:.1f} s after the cut", flush=True)
            if outcome.problem or options.verbose:
                print("\n".join(outcome.errors), flush=True)
    print(table(outcomes))
    problems = sum(1 for outcome in outcomes if outcome.problem)
    print(f"{len(outcomes) - problems} passed, {problems} failed")
    good = collections.Counter(one.kind for one in outcomes if not one.problem)
    named = sum(1 for one in outcomes if one.kind == "failed" and all(re.search(r"rank \d", t) for t in one.errors))
    Tally("link cut", len(outcomes), named, good["completed"], good["failed"],
          sum(1 for one in outcomes if one.kind == "hung"), problems).tell()
    return 1 if problems else 0


HOWS = ["down"]

if __name__ == "__main__":
    sys.exit(main())
