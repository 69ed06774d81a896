#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks connections at random times while a job whose connections fail over (net.failover) runs collectives.

The two ranks are threads of one process, on two pretended hosts. Each call must complete, and every element must be
right. A preloaded library breaks the connections (break_sockets.c). Without fail-over, the same breaks must end the
job.

Run as: socket_break_test.py PATH_OF_TUTTI PATH_OF_BREAK_SOCKETS [--device host|cuda] [--protocols simple,ll]
[--min SIZE] [--max SIZE] [--milliseconds N] [--repeat N] [--further NETWORK]

With --further, connections fail over to this network, too.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from run_tool import SHARED_GPU, SKIPPED, count_gpus  # noqa: E402

ARGS = None
LIMIT_S = 200


class SocketBreak(unittest.TestCase):
    def bench(self, collective, protocol, *settings):
        environment = dict(os.environ, LD_PRELOAD=ARGS.breaker, BREAK_SOCKETS_MS=str(ARGS.milliseconds), **SHARED_GPU)
        command = [ARGS.tutti, "bench", collective, "-n", "2", "--threads", "--hosts", "a,b", "--device", ARGS.device,
                   "--min", ARGS.min, "--max", ARGS.max, "--factor", "32",
                   "--repeat", str(ARGS.repeat), "--set", f"plugins.protocol=[{protocol}]",
                   "--set", f"network=[{','.join(['socket', *ARGS.further])}]",
                   "--set", "settings.net.socket.congestion=cubic", "--set", "timeouts.operation=30s"]
        for setting in settings:
            command += ["--set", setting]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S,
                              check=False)

    def test_calls_complete(self):
        for protocol in ARGS.protocols.split(","):
            for collective in ("all_reduce", "all_gather", "send_recv"):
                with self.subTest(f"{collective}, {protocol}"):
                    run = self.bench(collective, protocol, "net.failover=true")
                    text = run.stdout + run.stderr
                    self.assertEqual(run.returncode, 0, text)
                    self.assertIn("wrong 0", run.stdout, text)
                    broken = int(re.search(r"broke (\d+) connections", run.stderr)[1])
                    counted = re.search(r"# (\d+) fail-over\(s\) of connections, (\d+) message", run.stdout)
                    self.assertGreater(broken, 0, text)
                    self.assertTrue(counted, text)
                    print(f"{ARGS.device} {collective} {protocol}: {broken} broken connections, {counted[1]} "
                          f"fail-overs, {counted[2]} messages sent again", flush=True)

    def test_without_fail_over_breaks_end_the_job(self):
        run = self.bench("all_reduce", ARGS.protocols.split(",")[0])
        self.assertNotEqual(run.returncode, 0, run.stdout)
        self.assertIn("remote error", run.stderr)


def main():
    global ARGS  # pylint: disable=global-statement
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti")
    parser.add_argument("breaker", help="the library break_sockets")
    parser.add_argument("--device", default="host", choices=("host", "cuda"))
    parser.add_argument("--protocols", default="simple,ll")
    parser.add_argument("--min", default="8", help="bytes of the smallest call")
    parser.add_argument("--max", default="8M", help="bytes of the largest call")
    parser.add_argument("--milliseconds", type=int, default=20, help="mean time between breaks")
    parser.add_argument("--further", action="append", default=[], metavar="NETWORK")
    parser.add_argument("--repeat", type=int, default=1, help="rounds of all sizes")
    ARGS = parser.parse_args()
    if ARGS.device == "cuda" and count_gpus() == 0:
        print("skipped: there is no GPU")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main()
