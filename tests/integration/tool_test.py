#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The `tutti` command from end to end: its output, its exit codes, and that it leaves no process behind.

Run as: tool_test.py PATH_OF_TUTTI [unittest arguments]
"""

import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from run_tool import clean_environment, free_port, run_tool

TIMEOUT_S = 60
TUTTI = "tutti"
SMALL = ["--min", "64", "--max", "4K", "--factor", "8", "--iters", "5", "--repeat", "2"]
PLANS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "plans"
ROW = re.compile(r"^ +\d+ +\d+ +\w+ +\w+ +-?\d+ ")
RESULT_KEYS = {"bytes", "count", "type", "op", "root", "time_us", "min_us", "algbw", "busbw", "wrong", "ran"}


def tutti(*arguments, **extra):
    """Runs the tool to its end."""
    return run_tool(TUTTI, *arguments, timeout=TIMEOUT_S, environment=clean_environment() | extra)


def start(*arguments, **extra):
    return subprocess.Popen([TUTTI, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=clean_environment() | extra, stdin=subprocess.DEVNULL)


def children_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, what):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.01)


class ToolTest(unittest.TestCase):
    def run_ok(self, *arguments, **extra):
        result = tutti(*arguments, **extra)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}{result.stdout}")
        return result.stdout

    def run_bad(self, exit_code, *arguments, says):
        result = tutti(*arguments)
        self.assertEqual(result.returncode, exit_code, f"{arguments}: {result.stderr}{result.stdout}")
        self.assertIn(says, result.stderr)
        self.assertTrue(result.stderr.startswith("tutti: "), result.stderr)
        return result.stderr


class Shell(ToolTest):
    def test_version(self):
        self.assertRegex(self.run_ok("--version"), r"^tutti \d+\.\d+\.\d+\n$")

    def test_help_teaches(self):
        text = self.run_ok("--help")
        for word in ("bench", "explain", "plan", "config", "plugin", "tutti bench all_reduce --ranks 4"):
            self.assertIn(word, text)
        for command in ("bench", "explain", "plan", "config", "plugin"):
            self.assertIn("--help", self.run_ok(command, "--help"))

    def test_usage_errors_are_one_line_and_exit_2(self):
        for arguments, says in ((["bench", "all_redoce"], "'all_redoce' is none of all_reduce"),
                                (["bench", "allreduce"], "sendrecv; did you mean 'all_reduce'?"),
                                (["bnech"], "'bnech' is not known here; did you mean 'bench'?"),
                                (["plan", "prnt"], "'prnt' is not known here; did you mean 'print'?"),
                                (["bench", "all_reduce", "--maxx", "8"], "'--maxx' is not known here; did you mean "
                                 "'--max'?"),
                                (["plan", "print", "--colective", "all_reduce"], "did you mean '--collective'?"),
                                (["bench", "-np", "4"], "'-np' is not known here; did you mean '-n'?"),
                                (["bench", "all_reduce", "-np", "4"], "did you mean '-n'?"),
                                (["plugin", "test", "./absent.so"], "./absent.so cannot be read: No such file or "
                                 "directory; name the file of a plugin"),
                                (["bench"], "collective"),
                                (["bench", "all_reduce", "--min", "12Q"], "write 8, 64K, 16M or 1G"),
                                (["bench", "all_reduce", "--min", "8", "--max", "4"], "--max"),
                                (["bench", "all_reduce", "--warmup", "0"], "--warmup: '0' is not allowed; write a "
                                 "number from 1 on"),
                                (["bench", "broadcast", "--root", "-1"], "write a number from 0 on"),
                                (["bench", "all_reduce", "--type", "float23"], "'float23' is none of int8"),
                                (["bench", "all_reduce", "--set", "novalue"], "is not key=value"),
                                (["bench", "broadcast", "--ranks", "2", "--root", "2"], "2 is no rank of 2"),
                                (["bench", "all_reduce", "--rank", "0"], "needs an id"),
                                (["bench", "all_reduce", "--id", "x"], "tutti id --file FILE"),
                                (["bench", "all_reduce", "--rank", "0", "--id-file", "/absent"], "No such file"),
                                (["bench", "all_reduce", "--hosts", "a,b,c"], "more hosts than"),
                                (["bench", "all_reduce", "--graph"], "needs --device cuda"),
                                (["bench", "all_reduce", "--compare", "libnccl.so.2"], "needs --device cuda"),
                                (["plan"], "subcommand"), ([], "subcommand"), (["nonsense"], "nonsense")):
            with self.subTest(arguments):
                self.assertEqual(self.run_bad(2, *arguments, says=says).count("\n"), 1)


class Bench(ToolTest):
    def check_results(self, document, collective, ranks):
        self.assertEqual((document["collective"], document["ranks"]), (collective, ranks))
        self.assertRegex(document["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(len(document["places"]), ranks)
        self.assertEqual(document["wrong"], 0)
        self.assertTrue(document["results"])
        for result in document["results"]:
            self.assertLessEqual(RESULT_KEYS, set(result))
            self.assertGreater(result["time_us"], 0)
            self.assertLessEqual(result["min_us"], result["time_us"])
            self.assertEqual(result["wrong"], 0)
            self.assertAlmostEqual(result["algbw"], result["bytes"] / result["time_us"] / 1e3)
            self.assertRegex(result["ran"], r"^[\w/-]+/[\w-]+/[\w+-]+ ×\d+$")

    def test_table(self):
        lines = self.run_ok("bench", "all_reduce", "--ranks", 3, *SMALL).splitlines()
        self.assertRegex(lines[0], r"^# Tutti \d.*: all_reduce, 3 ranks as processes$")
        self.assertTrue(any(re.match(r"# host \S+, rank:pid 0:\d+ 1:\d+ 2:\d+$", line) for line in lines))
        rows = [line.split() for line in lines if ROW.match(line)]
        self.assertEqual([row[0] for row in rows], ["64", "512", "4096"])
        for row in rows:
            self.assertEqual(row[1:5], [str(int(row[0]) // 4), "float32", "sum", "-1"])
            self.assertEqual((row[8], row[12], len(row)), ("0", "0", 15))
        self.assertRegex(lines[-1], r"^# average bus bandwidth \S+ GB/s, wrong 0$")

    def test_every_collective_as_processes(self):
        for collective in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all",
                           "all_to_all_v", "gather", "scatter", "send_recv"):
            with self.subTest(collective):
                text = self.run_ok("bench", collective, "--ranks", 3, "--root", 1, "--json", *SMALL)
                document = json.loads(text)
                self.check_results(document, collective, 3)
                moves_apart = collective in ("all_to_all", "all_to_all_v", "send_recv")
                self.assertEqual("in_place_time_us" in document["results"][0], not moves_apart)
                rooted = collective in ("broadcast", "reduce", "gather", "scatter")
                self.assertEqual(document["results"][0]["root"], 1 if rooted else -1)

    def test_single_copy_between_processes_only_where_asked_for(self):
        large = ["--ranks", 2, "--min", "64K", "--max", "1M", "--factor", "4", "--iters", "2", "--repeat", "2",
                 "--set", "log.level=info", "--set", "shm.single_copy_min=64K"]
        for collective in ("broadcast", "reduce", "all_gather"):
            slots = tutti("bench", collective, *large)
            self.assertEqual(slots.returncode, 0, slots.stderr)
            self.assertIn("single copy: off", slots.stderr)
            read = tutti("bench", collective, *large, "--set", "shm.single_copy=on")
            if "does not let this process read" in read.stderr:
                self.skipTest("the kernel forbids it here")
            self.assertEqual(read.returncode, 0, read.stderr)
            self.assertIn("single copy: process_vm_readv", read.stderr)

    def test_bus_bandwidth_factors(self):
        for collective, factor in (("all_reduce", 2 * 3 / 4), ("all_gather", 3 / 4), ("all_to_all", 3 / 4),
                                   ("broadcast", 1), ("sendrecv", 1)):
            document = json.loads(self.run_ok("bench", collective, "-n", 4, "--threads", "--json", *SMALL))
            for result in document["results"]:
                self.assertAlmostEqual(result["busbw"], factor * result["algbw"])

    def test_all_types_and_operators_as_threads(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "result.json"
            text = self.run_ok("bench", "reduce_scatter", "--threads", "--type", "all", "--op", "all", "--in-place",
                               "only", "--min", "1K", "--max", "1K", "--iters", 2, "--repeat", 1, "--json", file)
            self.assertIn("2 ranks as threads", text)
            results = json.loads(file.read_text())["results"]
        self.assertEqual(len({(result["type"], result["op"]) for result in results}), 12 * 6)
        self.assertTrue(all("time_us" not in result and result["in_place_wrong"] == 0 for result in results))

    def test_a_barrier_before_each_call(self):
        for ranks in (1, 3):
            with self.subTest(ranks):
                said = self.run_ok("bench", "broadcast", "--ranks", ranks, "--barrier", "--json", *SMALL)
                document = json.loads(said)
                self.assertIs(document["barrier"], True)
                self.assertEqual((document["ranks"], document["wrong"]), (ranks, 0))

    def test_csv(self):
        lines = self.run_ok("bench", "all_gather", "--csv", *SMALL).splitlines()
        self.assertTrue(lines[0].startswith("bytes,count,type,op,root,time_us"))
        self.assertTrue(all(line.count(",") == lines[0].count(",") for line in lines))

    def test_pretended_hosts_use_the_network(self):
        text = self.run_ok("bench", "all_reduce", "-n", 4, "--hosts", "a,b", *SMALL)
        self.assertRegex(text, r"# host a, rank:pid 0:\d+ 1:\d+\n# host b, rank:pid 2:\d+ 3:\d+\n")
        self.assertTrue(all("net" in line for line in text.splitlines() if ROW.match(line)), text)

    def test_settings_choose(self):
        text = self.run_ok("bench", "all_reduce", "--set", "algorithm=ring", "--set", "protocol=ll", *SMALL)
        self.assertIn("# settings algorithm=ring protocol=ll", text)
        self.assertEqual(text.count("ring/ll/"), 3)

    def test_device_is_host_unless_asked(self):
        document = json.loads(self.run_ok("bench", "all_reduce", "--device", "host", "--json", *SMALL))
        self.assertEqual((document["device"], document["complete"]), ("host", True))

    def test_device_that_is_not_there(self):
        result = tutti("bench", "all_reduce", "--device", "cuda", *SMALL, CUDA_VISIBLE_DEVICES="")
        if result.returncode == 2:  # a build without CUDA
            self.assertIn("--device: cuda is not in this build", result.stderr)
        else:
            self.assertEqual(result.returncode, 1)
            self.assertIn("cannot use a CUDA device", result.stderr)

    def test_json_file_has_the_rows_of_a_run_that_was_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "result.json"
            process = start("bench", "all_reduce", "--min", 8, "--max", "1G", "--factor", 2, "--iters", 1,
                            "--json", file)
            for line in process.stdout:
                if ROW.match(line):
                    break
            wait_until(lambda: file.stat().st_size > 0, "a row in the file")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=TIMEOUT_S)
            document = json.loads(file.read_text())
        self.assertFalse(document["complete"])
        self.assertEqual(document["results"][0]["bytes"], 8)

    def test_bad_settings_fail(self):
        self.run_bad(1, "bench", "all_reduce", "--set", "protocoll=ll", *SMALL, says="protocol")

    def test_verbose(self):
        text = self.run_ok("bench", "all_reduce", "-v", "--seed", 7, *SMALL)
        for word in ("seed 7", "start-up", "predicted", "peak memory"):
            self.assertIn(word, text)

    def test_launch_by_hand(self):
        ident = f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"
        self.launch_two(lambda rank: start("bench", "all_reduce", "--ranks", 2, "--rank", rank, *SMALL, TUTTI_ID=ident))

    def test_launch_by_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "job.id")
            self.run_ok("id", "--file", file)
            self.assertEqual(file.stat().st_mode & 0o777, 0o600)
            self.run_bad(1, "id", "--file", file, says="exists already")
            self.launch_two(lambda rank: start("bench", "all_reduce", "--ranks", 2, "--rank", rank, "--id-file", file,
                                               *SMALL))
            file.chmod(0o640)
            self.run_bad(2, "bench", "all_reduce", "--rank", 0, "--id-file", file, says="other users may open it")

    def test_ranks_meet_on_the_interface_of_the_configuration(self):
        self.run_ok("bench", "all_reduce", *SMALL, "--set", "bootstrap.interface==lo")
        for launch in ((), ("--threads",)):
            self.run_bad(1, "bench", "all_reduce", *launch, *SMALL, "--set", "bootstrap.interface=nonsense",
                         says="nonsense")

    def test_an_id_for_another_machine(self):
        self.assertRegex(self.run_ok("id", "--at", "127.0.0.1:7000"), r"^127\.0\.0\.1:7000:[0-9a-f]{32}\n$")
        self.assertNotEqual(self.run_ok("id", "--at", "127.0.0.1:7000"), self.run_ok("id", "--at", "127.0.0.1:7000"))
        self.run_bad(1, "id", "--at", "127.0.0.1", says="it has no port")

    def test_an_id_on_the_interface_of_the_configuration(self):
        with tempfile.TemporaryDirectory() as folder:
            job = pathlib.Path(folder, "job.yaml")
            job.write_text("bootstrap.interface: [127.0.0.0/8]\n")
            job.chmod(0o600)
            for arguments, variables in (((), {"TUTTI_BOOTSTRAP_INTERFACE": "[127.0.0.0/8]"}),
                                         ((), {"TUTTI_SITE_CONFIG": str(job)}), ((), {"TUTTI_CONFIG": str(job)}),
                                         (("--config", job), {}), (("--set", "bootstrap.interface=127.0.0.0/8"), {})):
                self.assertRegex(self.run_ok("id", *arguments, **variables), r"^127\.0\.0\.1:", (arguments, variables))
        nonsense = ("--set", "bootstrap.interface=nonsense")
        self.run_bad(1, "id", *nonsense, says="bootstrap.interface (")
        self.assertRegex(self.run_ok("id", "--at", "127.0.0.1:7000", *nonsense), r"^127\.0\.0\.1:7000:")

    def launch_two(self, start_rank):
        ranks = [start_rank(rank) for rank in (0, 1)]
        outputs = [process.communicate(timeout=TIMEOUT_S) for process in ranks]
        self.assertEqual([process.returncode for process in ranks], [0, 0], outputs)
        self.assertIn("average bus bandwidth", outputs[0][0])
        self.assertEqual(outputs[1][0], "")

    def test_launch_by_environment(self):
        extra = {"TUTTI_ID": f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}", "TUTTI_RANK": "0",
                 "TUTTI_RANKS": "1"}
        self.assertIn("1 ranks", self.run_ok("bench", "all_reduce", *SMALL, **extra))


class Endings(ToolTest):
    """No process stays behind after any end of the benchmark."""

    def start_long(self):
        process = start("bench", "all_reduce", "--ranks", 3, "--min", "4K", "--max", "4K", "--iters", 1000000000)
        wait_until(lambda: len(children_of(process.pid)) == 3, "three ranks")
        children = children_of(process.pid)
        for line in process.stdout:
            if line.startswith("#") and "(B)" in line:
                break
        return process, children

    def check_end(self, process, children, exit_code):
        output, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, exit_code, output + errors)
        wait_until(lambda: not any(map(alive, children)), "the end of the children")
        return errors

    def test_killed_rank(self):
        process, children = self.start_long()
        os.kill(children[1], signal.SIGKILL)
        errors = self.check_end(process, children, 1)
        self.assertRegex(errors, rf"tutti: rank 1 \(process {children[1]}\) was ended by signal 9")
        self.assertIn("rank 1", re.sub(r"rank 1 \(process", "", errors), "the other ranks must name the lost one")

    def test_interrupt(self):
        process, children = self.start_long()
        os.kill(process.pid, signal.SIGINT)
        self.check_end(process, children, 128 + signal.SIGINT)

    def test_killed_parent(self):
        process, children = self.start_long()
        os.kill(process.pid, signal.SIGKILL)
        self.check_end(process, children, -signal.SIGKILL)


class Failures(ToolTest):
    """A failure of all ranks is printed once, with the ranks."""

    def check_once(self, *arguments, ranks, says):
        errors = self.run_bad(1, *arguments, says=says)
        self.assertRegex(errors, rf"^tutti: {ranks}: [^\n]*\n$")

    def test_one_cause_on_all_ranks(self):
        for launch in ([], ["--threads"]):
            with self.subTest(launch):
                bench = ["bench", "all_reduce", "--ranks", 4, *SMALL, *launch]
                self.check_once(*bench, "--set", "plugins.protocol=[simpel]", ranks="ranks 0-3",
                                says="did you mean 'simple'")
        self.check_once("explain", "all_reduce", "--ranks", 3, "--set", "plugins.protocol=[simpel]", ranks="ranks 0-2",
                        says="did you mean 'simple'")
        with tempfile.TemporaryDirectory() as folder:
            self.check_once("tune", "--ranks", 2, "--out", f"{folder}/table.yaml", "--set", "plugins.protocol=[simpel]",
                            ranks="ranks 0,1", says="did you mean 'simple'")

    def test_one_rank(self):
        self.check_once("bench", "all_reduce", "--ranks", 1, *SMALL, "--set", "plugins.protocol=[simpel]",
                        ranks="rank 0", says="did you mean 'simple'")

    def test_a_text_of_many_lines(self):
        errors = self.run_bad(1, "bench", "all_reduce", "--ranks", 3, *SMALL, "--set", "algorithm=direct/shifted",
                              says="tutti: ranks 0-2: unsupported: ")
        self.assertEqual(errors.count("nothing can run all_reduce"), 1, errors)
        candidates = [line.split()[0] for line in errors.splitlines()[1:]]
        self.assertEqual(set(candidates[:4]), {"direct/shifted"}, "the candidates of the setting must come first")
        self.assertNotIn("direct/shifted", candidates[4:])

    def test_warnings_of_all_ranks(self):
        for launch in ([], ["--threads"]):
            with self.subTest(launch):
                result = tutti("bench", "all_reduce", "--ranks", 3, *SMALL, *launch,
                               "--set", "settings.tuner.model.x=1")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stderr.count("settings.tuner.model.x has no effect"), 1, result.stderr)

    def test_the_cause_comes_first(self):
        process = start("bench", "all_reduce", "--ranks", 3, "--min", "4K", "--max", "4K", "--iters", 1000000000)
        for line in process.stdout:
            if line.startswith("#") and "(B)" in line:
                break
        os.kill(children_of(process.pid)[1], signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertRegex(errors, r"^tutti: rank 1 \(process \d+\) was ended by signal 9 [^\n]*\n"
                                 r"tutti: ranks 0,2: remote error: [^\n]*rank 1 [^\n]* is lost[^\n]*\n$")


class Explain(ToolTest):
    def test_explain(self):
        text = self.run_ok("explain", "all_reduce", "--ranks", 2, "--size", "1M")
        self.assertIn("all_reduce float32 sum, 262144 elements, 2 ranks", text)
        self.assertIn("chosen", text)


class Plan(ToolTest):
    def plugin(self, name):
        """The absolute path of an algorithm plugin's file."""
        line = re.search(rf"(?m)^algorithm +{name} .* (/\S+)$", self.run_ok("plugin", "list"))
        self.assertIsNotNone(line, name)
        return line[1]

    def test_an_absolute_path_names_the_plugin_s_file(self):
        for text, same_as in ((self.plugin("ring"), "ring"), (f"{self.plugin('direct')}/two-shot", "direct/two-shot")):
            question = ["--ranks", 3, "--algorithm"]
            named = self.run_ok("plan", "export", "all_reduce", *question, same_as)
            self.assertEqual(self.run_ok("plan", "export", "all_reduce", *question, text), named)
            self.assertIn("right: all_reduce over 3 ranks",
                          self.run_ok("plan", "verify", "--collective", "all_reduce", *question, text))
            self.assertIn(f"{same_as}\n\nall_reduce, rank 0 of 3",
                          self.run_ok("plan", "print", "--collective", "all_reduce", *question, text))

    def test_a_file_in_a_folder_whose_name_ends_with_so(self):
        with tempfile.TemporaryDirectory(suffix=".so") as folder:
            link = pathlib.Path(folder) / "tutti-algo-ring.so"
            link.symlink_to(self.plugin("ring"))
            self.run_ok("plan", "export", "all_reduce", "--algorithm", link)

    def test_paths_that_lead_nowhere(self):
        export = ["plan", "export", "all_reduce", "--algorithm"]
        self.run_bad(1, *export, "/no/such/tutti-algo-x.so/y", says="plugin /no/such/tutti-algo-x.so does not exist")
        self.run_bad(1, *export, f"{self.plugin('ring')}/spiral", says="ring has no variant 'spiral'; ring can")

    def test_verify_proves_hundreds_of_ranks(self):
        self.assertIn("right: all_gather over 300 ranks",
                      self.run_ok("plan", "verify", "--collective", "all_gather", "--ranks", 300))

    def test_a_rolled_ring_of_16384_ranks(self):
        file = PLANS / "ring_rolled.yaml"
        began = time.monotonic()
        text = self.run_ok("plan", "print", file, "--rank", 12345)
        self.assertIn("all_reduce, rank 12345 of 16384, channel 0, 16384 chunk(s) per block, 5 steps in ", text)
        self.assertIn("    1    recvReduceSend      rank 12344 + input[12344 - k] -> rank 12346\n", text)
        for options, uses in (((), "out of place and in place"), (("--in-place",), "in place"),
                              (("--out-of-place",), "out of place")):
            self.assertIn(f"right: all_reduce over 16384 ranks, {uses}, with 2 slots, proved by rotation",
                          self.run_ok("plan", "verify", file, *options))
        self.assertLess(time.monotonic() - began, TIMEOUT_S / 2)
        self.run_bad(1, "plan", "verify", file, "--slots", 1, says="deadlock: rank 0 waits at step 1 for a slot to")

    def test_the_ring_of_16384_ranks(self):
        out = self.run_ok("plan", "verify", "--collective", "all_reduce", "--algorithm", "ring", "--ranks", 16384)
        self.assertIn("right: all_reduce over 16384 ranks, out of place and in place, with 2 slots, proved by rotation",
                      out)

    def test_verify_lists_all_faults(self):
        right = self.run_ok("plan", "verify", PLANS / "doubling4.yaml", "--all")
        self.assertIn("right: all_reduce over 4 ranks, out of place and in place, with 2 slots, proved exactly", right)
        text = (PLANS / "doubling4.yaml").read_text().replace("send: [3]}\n", "send: [3], final: true}\n", 1)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as wrong:
            wrong.write(text)
            wrong.flush()
            result = tutti("plan", "verify", wrong.name, "--all")
            self.assertEqual(result.returncode, 1)
            self.assertIn("channel 0, out of place and in place: rank 1 output chunk 0: was folded on by rank 1 step 2 "
                          "after it had been made final", result.stdout)
            self.assertRegex(result.stderr, r"\d+ counter-example\(s\)")

    def test_verify_proves_the_uses_of_buffers_that_a_collective_allows(self):
        exchange = self.run_ok("plan", "verify", "--collective", "all_to_all", "--algorithm", "direct")
        self.assertIn("right: all_to_all over 4 ranks, out of place, with 2 slots, proved exactly", exchange)
        self.run_bad(2, "plan", "verify", PLANS / "doubling4.yaml", "--in-place", "--out-of-place", says="excludes")

    def test_verify_takes_one_source(self):
        self.run_bad(2, "plan", "verify", says="file,--collective")
        self.run_bad(2, "plan", "verify", "-", "--collective", "broadcast", says="file,--collective")


class Config(ToolTest):
    def test_show_says_value_and_origin(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "job.yaml"
            file.write_text("algorithm: ring\n")
            text = self.run_ok("config", "show", "--config", file, "--set", "protocol=ll")
            document = json.loads(self.run_ok("config", "show", "--config", file, "--set", "protocol=ll", "--json"))
        self.assertRegex(text, r"(?m)^algorithm +ring +.*job\.yaml:1")
        self.assertRegex(text, r"(?m)^protocol +ll +")
        values = {entry["key"]: entry for entry in document["settings"]}
        self.assertEqual(values["protocol"]["value"], "ll")
        self.assertIn("job.yaml", values["algorithm"]["origin"])

    def test_environment_is_an_origin(self):
        text = self.run_ok("config", "show", TUTTI_PROTOCOL="ll")
        self.assertRegex(text, r"(?m)^protocol +ll +.*TUTTI_PROTOCOL")

    def test_check(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "job.yaml"
            file.write_text("protocol: ll\n")
            self.run_ok("config", "check", file)
            file.write_text("protocoll: ll\n")
            self.run_bad(1, "config", "check", file, says="job.yaml:1")
            self.run_bad(1, "config", "check", file.with_name("none.yaml"), says="none.yaml")


class Plugin(ToolTest):
    def test_list(self):
        text = self.run_ok("plugin", "list")
        for name in ("ring", "direct", "simple", "ll", "socket"):
            self.assertRegex(text, rf"(?m)\b{name}\b")
        plugins = json.loads(self.run_ok("plugin", "list", "--json"))["plugins"]
        self.assertLessEqual({("algo", "ring"), ("proto", "ll")}, {(p["kind"], p["name"]) for p in plugins})

    def test_check(self):
        self.run_ok("plugin", "list", "--check")

    def test_a_file_that_is_no_plugin(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "CMakeLists.txt").write_text("project(x)")
            result = subprocess.run([TUTTI, "plugin", "test", "CMakeLists.txt"], cwd=folder, env=clean_environment(),
                                    capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("CMakeLists.txt is not a shared object (no ELF header); name the file of a plugin",
                      result.stderr)

    def test_a_folder_of_the_same_name_is_not_the_program(self):
        """Found through PATH, the program knows its name without a directory."""
        tool = pathlib.Path(TUTTI).resolve()
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / tool.name).mkdir()
            text = subprocess.run([tool.name, "plugin", "list"], capture_output=True, text=True, timeout=TIMEOUT_S,
                                  env=clean_environment() | {"PATH": str(tool.parent)}, cwd=folder).stdout
        self.assertIn("tutti-algo-ring.so", text)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    TUTTI = sys.argv.pop(1)
    unittest.main()
