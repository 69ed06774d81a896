#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plugins that were built from the frozen headers of ABI 1.0 load, obey the contract and carry a job.

    python3 plugins_test.py TOOL NETWORK TUNER
"""

import subprocess
import sys
import unittest

TOOL, NETWORK, TUNER = sys.argv[1:4]
del sys.argv[1:4]


def run(*arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=100)


class FrozenPlugins(unittest.TestCase):
    def test_they_pass_the_kit(self):
        for file, arguments in ((NETWORK, ("--where", "process")), (TUNER, ())):
            result = run("plugin", "test", file, *arguments)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn(" 0 failed", result.stdout)

    def test_they_carry_a_job(self):
        result = run("bench", "all_reduce", "-n", "2", "--hosts", "a,b", "--min", "8", "--max", "64K", "--set",
                     f"plugins.network=[{NETWORK}]", "--set", f"plugins.tuner={TUNER}")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("unix_stream", result.stdout + result.stderr)

    def test_the_tuner_decides(self):
        own, result = (run("explain", "all_reduce", "--ranks", "3", *setting)
                       for setting in ((), ("--set", f"plugins.tuner={TUNER}")))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"chosen: [\d.]+ µs predicted")
        self.assertNotEqual(result.stdout, own.stdout)  # the times are those of the frozen tuner


if __name__ == "__main__":
    unittest.main()
