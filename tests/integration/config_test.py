#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows and checks configurations with the `tutti` command, and runs ranks with wrong names.

usage: config_test.py TUTTI ZOO CONFIGS [unittest options]
ZOO is the folder of the plugins in tests/zoo, CONFIGS the folder configs/ of the sources.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import unittest

from run_tool import clean_environment, free_port, run_tool

TIMEOUT_S = 60
SMALL = ("--min", 64, "--max", 64, "--iters", 2, "--repeat", 1)
VARIANTS = "direct, direct/one-shot, direct/two-shot, direct/shifted"
HIERARCHIES = "hier, hier/exchange, hier/doubling, hier/ring, hier/bruck, hier/multiplying, " \
              "hier/binomial, hier/tree"
SEARCHED = r"searched for tutti-\w+-\w+\.so in .*/tutti/plugins"


class ConfigTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def write(self, text, name="job.yaml"):
        (self.folder / name).write_text(text)
        return name

    def tutti(self, *arguments, **extra):
        """Runs the tool in the folder of the test, so that places begin with the name of a file."""
        site = {"TUTTI_SITE_CONFIG": self.write("", "empty.yaml")}
        return run_tool(TUTTI, *arguments, timeout=TIMEOUT_S, environment=clean_environment() | site | extra,
                        cwd=self.folder)

    def run_ok(self, *arguments, **extra):
        result = self.tutti(*arguments, **extra)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}{result.stdout}")
        return result

    def error_of(self, *arguments, **extra):
        """The only line on stderr of a command that fails."""
        result = self.tutti(*arguments, **extra)
        self.assertEqual(result.returncode, 1, f"{arguments}: {result.stderr}{result.stdout}")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr.removeprefix("tutti: configuration error: ").rstrip("\n")


class Check(ConfigTest):
    def check(self, text):
        return self.error_of("config", "check", self.write(text))

    def each_says(self, *cases):
        for text, says in cases:
            with self.subTest(text):
                self.assertIn(says, self.check(text))

    def test_settings_that_no_job_can_follow(self):
        self.each_says(
            ("net.racks: [left]\n", "job.yaml:1:13: net.racks: 'left' is no rack"),
            ("network: socket\nnet.inside_rack: socket\n", "net.racks names no rack"),
            ("network: [socket]\nnet: {racks: [left=a, right=b], inside_rack: ucx}\n",
             "job.yaml:2:46: net.inside_rack is 'ucx', but 'network' (job job.yaml:1:1) does not name it; add it"),
            ("network: socket\nrules:\n- match: {max_size: 64KiB}\n  choose: {network: nccl}\n",
             "job.yaml:4:21: the rule chooses network 'nccl', but 'network' (job job.yaml:1:1) does not name it"),
            ("hardware.file: /nosuch.yaml\n", "cannot read"),
            ("topology.file: /nosuch.yaml\n", "job.yaml:1:16: topology.file: cannot read"))

    def test_rules_that_never_apply(self):
        self.each_says(
            ("rules:\n- match: {min_size: 1KiB}\n  forbid: {protocol: ll}\n"
             "- match: {min_size: 4KiB, collective: all_reduce}\n  choose: {algorithm: ring}\n",
             "job.yaml:4:3: this rule never applies: the rule at"),
            ("rules:\n- choose: {protocol: simple}\n- match: {link: net}\n  forbid: {algorithm: tree}\n",
             "put this rule before it"))
        for text in ("rules:\n- match: {min_size: 4KiB}\n  forbid: {protocol: ll}\n- forbid: {algorithm: tree}\n",
                     "rules:\n- forbid: {network: ib}\n- match: {max_size: 64}\n  choose: {algorithm: direct}\n"):
            self.run_ok("config", "check", self.write(text))

    def test_syntax_errors_have_a_cause(self):
        self.each_says(
            ("shm:\n\tslots: 4\n", "job.yaml:2:7: the line begins with a tab; YAML indents by spaces alone"),
            ("protocol: ll\n  slots: 4\n", "job.yaml:2:8: a ':' where no key can be"),
            ("plugins.network: [socket\n", "a list that begins with '[' has no ']'"),
            ("shm: {slots: 4\n", "a map that begins with '{' has no '}'"),
            ("protocol: \"ll\n", "this is no YAML: "))

    def test_files_of_a_different_kind(self):
        names = "no configuration; a configuration names it in "
        self.each_says(
            ("tutti_topology: 1\n", names + "topology.file"),
            ("tutti_hardware: 1\n", names + "hardware.file"),
            ("tutti_table: 1\n", names + "settings.tuner.table.file"),
            ("version: 1\ncollective: all_reduce\n", names + "algorithm"))

    def test_short_words_have_no_far_guess(self):
        for text in ("network: tcp\n", "algorithm: mine\n"):
            with self.subTest(text):
                error = self.check(text)
                self.assertIn("there is no", error)
                self.assertNotIn("did you mean", error)

    def test_a_file_where_a_name_belongs(self):
        for text, key, kind, name in (
                ("algorithm: /opt/tutti-algo-mine.so", "algorithm", "algorithm", "mine"),
                ("algorithm: build/tutti-algo-mine.so/fast", "algorithm", "algorithm", "mine/fast"),
                ("protocol: /opt/tutti-proto-mine.so", "protocol", "protocol", "mine"),
                ("rules: [choose: {protocol: /opt/tutti-proto-mine.so}]", "rules.choose.protocol", "protocol",
                 "mine")):
            with self.subTest(text):
                error = self.check(text)
                self.assertIn(f"{key}: '{text.split()[-1].rstrip('}]')}' is a file", error)
                self.assertRegex(error, rf"add the absolute path to plugins\.{kind}, which is \[[^]]+\] \(built-in\), "
                                 rf"and write '{name}' here$")

    def test_misspelt_plugins_are_errors(self):
        for text, place, guess in (
                ("algorithm: rnig\n", "job.yaml:1:12: algorithm: there is no algorithm plugin 'rnig'", "ring"),
                ("\nprotocol: simpel\n", "job.yaml:2:11: protocol: there is no protocol plugin 'simpel'", "simple"),
                ("network: sokcet\n", "job.yaml:1:10: network: there is no network plugin 'sokcet'", "socket"),
                ("rules:\n  - choose: {network: sokcet}\n",
                 "job.yaml:2:23: rules.choose.network: there is no network plugin 'sokcet'", "socket"),
                ("rules:\n  - forbid: {algorithm: rnig}\n",
                 "job.yaml:2:25: rules.forbid.algorithm: there is no algorithm plugin 'rnig'", "ring"),
                ("rules:\n  - forbid:\n      protocol: l\n",
                 "job.yaml:3:17: rules.forbid.protocol: there is no protocol plugin 'l'", "ll"),
                ("settings:\n  net:\n    sokcet:\n      streams: 2\n",
                 "job.yaml:4:7: settings.net.sokcet.streams: there is no network plugin 'sokcet'", "socket")):
            with self.subTest(text):
                error = self.check(text)
                self.assertTrue(error.startswith(f"{place}; did you mean '{guess}'?; allowed: "), error)
                self.assertRegex(error, SEARCHED)

    def test_misspelt_names_in_hardware_figures_are_errors(self):
        job = self.write("hardware.file: figures.yaml\n")
        for text, place, guess in (
                ("networks: {sokcet: {latency_us: 300}}\n",
                 "figures.yaml:2:12: networks: there is no network plugin 'sokcet'", "socket"),
                ("protocols:\n  simpel-sm90: {latency_us: 3}\n",
                 "figures.yaml:3:3: protocols: there is no protocol plugin 'simpel'", "simple"),
                ("protocols: {cpoy: {latency_us: 3}}\n",
                 "figures.yaml:2:13: protocols: there is no protocol plugin 'cpoy'", "copy")):
            self.write("tutti_hardware: 1\n" + text, "figures.yaml")
            for command in (("config", "check", job), ("config", "show", "--config", job),
                            ("bench", "all_reduce", "--config", job), ("explain", "all_reduce", "--config", job)):
                with self.subTest(f"{command} {text}"):
                    error = self.error_of(*command)
                    self.assertIn(f"{place}; did you mean '{guess}'?; allowed: ", error)
                    self.assertRegex(error, SEARCHED)

    def test_hardware_figures_of_plugins_that_are_there(self):
        figures = "tutti_hardware: 1\nnetworks: {good: {gbs: 1}}\nprotocols: {copy: {latency_us: 3}}\n"
        self.write(figures, "figures.yaml")
        job = self.write("hardware.file: figures.yaml\n")
        self.assertIn("there is no network plugin 'good'", self.error_of("config", "check", job))
        self.run_ok("config", "check", job, TUTTI_PLUGIN_PATH=ZOO)
        self.write("hardware.file: figures.yaml\nplugins: {network: [good], on_missing: next}\n")
        self.run_ok("config", "check", job)  # the job may have no such plugin on a different host

    def test_misspelt_plugins_in_lists_are_errors(self):
        for text, place, guess in (("plugins:\n  network: [socket, sokcet]\n", "job.yaml:2:21", "socket"),
                                   ("plugins.algorithm:\n  - ring\n  - dircet\n", "job.yaml:3:5", "direct"),
                                   ("plugins.protocol: [simple, lll]\n", "job.yaml:1:28", "ll"),
                                   ("plugins.tuner: [modle]\n", "job.yaml:1:17", "model")):
            with self.subTest(text):
                self.assertRegex(self.check(text),
                                 rf"^{place}: TUTTI-P01 \w+ plugin '\w+' not found: no tutti-\S+\.so in "
                                 rf".*/tutti/plugins; did you mean '{guess}'\?; there are: .*{guess}")

    def test_variants(self):
        for text, key in (("algorithm: direct/oneshot\n", "job.yaml:1:12: algorithm"),
                          ("rules:\n- choose: {algorithm: direct/oneshot}\n", "job.yaml:2:23: rules.choose.algorithm")):
            self.assertEqual(self.check(text), f"{key}: algorithm 'direct' has no variant 'oneshot'; did you mean "
                                               f"'direct/one-shot'?; allowed: {VARIANTS}")
        self.assertIn(f"allowed: auto, ring, tree, tree/direct, tree/pipelined, {VARIANTS}, {HIERARCHIES}; ",
                      self.check("algorithm: rnig\n"))
        self.run_ok("config", "check", self.write("algorithm: direct/one-shot\n"))

    def test_settings_of_plugins(self):
        self.assertEqual(self.check("settings.net.socket.stream: 2\n"),
                         "job.yaml:1:1: net plugin 'socket' has no setting 'settings.net.socket.stream'; did you mean "
                         "'settings.net.socket.streams'?; allowed: interface, family, "
                         "streams, rails, stripe_min, buffer, congestion, silence, tls")
        self.assertIn("job.yaml:1:30: settings.net.socket.streams: 99 is out of range",
                      self.check("settings.net.socket.streams: 99\n"))
        self.assertIn("algo plugin 'ring' has no setting 'settings.algo.ring.x'; it has none",
                      self.check("settings.algo.ring.x: 1\n"))
        # A plugin that the job does not load is checked all the same.
        self.assertIn("allowed is 1B to 1024GiB", self.check("settings.tuner.model.channel_bytes: -5\n"))

    def test_a_plugin_that_is_not_loaded_cannot_be_chosen(self):
        text = "plugins.algorithm: [ring]\nrules:\n  - {}: {{algorithm: tree}}\n"
        self.assertEqual(self.check(text.format("choose")),
                         "job.yaml:3:25: rules.choose.algorithm: the algorithm plugin 'tree' is not loaded: "
                         "plugins.algorithm is [ring] (job job.yaml:1:1); add 'tree' there")
        self.run_ok("config", "check", self.write(text.format("forbid")))

    def test_a_plugin_may_be_missing_if_the_configuration_says_so(self):
        self.write("plugins: {on_missing: next, network: [absent, socket]}\nsettings.net.absent.device: x\n")
        result = self.run_ok("config", "check", "job.yaml")
        self.assertIn("tutti: warning: job.yaml:1:39: TUTTI-P01 network plugin 'absent' not found", result.stderr)

    def test_the_search_path_counts(self):
        self.write("network: good\n")
        self.assertIn("there is no network plugin 'good'", self.error_of("config", "check", "job.yaml"))
        self.run_ok("config", "check", "job.yaml", TUTTI_PLUGIN_PATH=ZOO)
        self.write(f"network: good\nplugins.path: [{ZOO}]\n")
        self.run_ok("config", "check", "job.yaml")

    @unittest.skipIf(os.geteuid() != 0, "only root can give a file away, and only root refuses it")
    def test_root_refuses_files_that_others_may_change(self):
        file = pathlib.Path(self.folder, self.write("plugins.trust: any\nprotocol: ll\n"))
        show = ("config", "show", "--config", file)
        self.run_ok(*show)
        os.chown(file, 54321, 0)
        says = (f"the configuration file {file.resolve()} is owned by user 54321 (mode 0644); root uses only files "
                "that no other user can change: correct owner and mode (chown, chmod), or set TUTTI_PLUGINS_TRUST=any")
        file.chmod(0o644)
        self.assertEqual(self.error_of(*show), says)  # a file cannot vouch for itself
        self.assertEqual(self.error_of("config", "check", file), says)
        for extra in ({"TUTTI_PLUGINS_TRUST": "any"}, {"TUTTI_SET": "plugins.trust=any"}):
            self.assertRegex(self.run_ok(*show, **extra).stdout, "protocol  +ll  +job ")
        self.run_ok(*show, "--set", "plugins.trust=any")
        site = self.write("plugins.trust: any\n", "site.yaml")
        self.run_ok(*show, TUTTI_SITE_CONFIG=site)
        os.chown(file, 0, 0)
        self.folder_of_everybody(file)

    def folder_of_everybody(self, file):
        folder = pathlib.Path(self.folder, "open")
        folder.mkdir()
        moved = file.rename(folder / file.name)
        for mode, is_refused in ((0o777, True), (0o775, False), (0o1777, False)):
            folder.chmod(mode)
            if is_refused:
                self.assertIn(f"is in {folder.resolve()}, which other users may write (mode 0777)",
                              self.error_of("config", "check", moved))
                self.run_ok("config", "check", moved, TUTTI_PLUGINS_TRUST="any", TUTTI_SHM_SLOTS="wrong")
            else:
                self.run_ok("config", "check", moved)

    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_other_users_are_warned_once(self):
        self.write("protocol: ll\n")
        file = pathlib.Path(self.folder, "job.yaml")
        os.chown(file, 54321, 0)
        file.chmod(0o644)
        os.chmod(self.folder, 0o755)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
        clean["TUTTI_SITE_CONFIG"] = str(pathlib.Path(self.folder, self.write("", "empty.yaml")))
        result = subprocess.run([TUTTI, "config", "show", "--config", file], capture_output=True, text=True, env=clean,
                                timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, user=12345, group=12345, extra_groups=[])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("is owned by user 54321"), 1, result.stderr)
        self.assertIn("correct owner and mode, or set plugins.trust to any", result.stderr)

    def test_a_plugin_that_ends_the_process_is_named(self):
        # AddressSanitizer's dlopen lets an exception pass to the loader, which gives its text.
        for name, says in (("throws_early", r".*no legs"),
                           ("exits_early", r"a static initialiser ended the process \(exit\)")):
            result = self.tutti("bench", "all_reduce", *SMALL, "--set", f"plugins.path={ZOO}/early", "--set",
                                f"plugins.tuner={name}")
            self.assertNotEqual(result.returncode, 0, result.stdout)
            self.assertRegex(result.stderr, rf"TUTTI-P05 plugin .*/tutti-tuner-{name}\.so does not load: {says}")

    def test_files_of_the_sources(self):
        for file in (CONFIGS / "default.yaml", *sorted((CONFIGS / "examples").glob("*.yaml"))):
            with self.subTest(file):
                self.run_ok("config", "check", file)

    def test_the_rules_in_the_default_file_work(self):
        """A call that matches any of the rules in the comment runs."""
        comment = re.search(r"(?m)^#   rules:\n(#  .*\n)+", (CONFIGS / "default.yaml").read_text()).group(0)
        self.write("".join(line.removeprefix("#   ") + "\n" for line in comment.splitlines()))
        self.run_ok("config", "check", "job.yaml")
        once = ("--config", "job.yaml", "--iters", 1, "--repeat", 1)
        large = ("--ranks", 8, "--type", "float16", "--min", "1M", "--max", "1M")
        for hosts in ("a", "a,b"):
            self.run_ok("bench", "all_reduce", "--hosts", hosts, *large, *once)
            for collective in ("all_reduce", "all_gather", "broadcast"):
                self.run_ok("bench", collective, "--hosts", hosts, "--min", "1K", "--max", "1K", *once)


class Show(ConfigTest):
    def line(self, text, key):
        """The words of a setting's line, and the lines of the values that it overrides."""
        found = re.search(rf"(?m)^{re.escape(key)} +(.*)\n((?:  overrides .*\n)*)", text)
        self.assertIsNotNone(found, f"{key} in {text}")
        return found.group(1).split(maxsplit=1), found.group(2).splitlines()

    def test_settings_of_every_plugin(self):
        self.write("settings.net.socket.streams: 4\n")
        text = self.run_ok("config", "show", "--config", "job.yaml",
                           TUTTI_SETTINGS_TUNER_MODEL_CHANNEL_BYTES="1M").stdout
        self.assertEqual(self.line(text, "settings.net.socket.streams"),
                         (["4", "job job.yaml:1:1"], ["  overrides 1 (built-in)"]))
        self.assertEqual(self.line(text, "settings.net.socket.family"), (["auto", "built-in"], []))
        self.assertEqual(self.line(text, "settings.tuner.model.channel_bytes")[0],
                         ["1MiB", "environment TUTTI_SETTINGS_TUNER_MODEL_CHANNEL_BYTES"])
        listed = json.loads(self.run_ok("plugin", "list", "--check", "--json").stdout)["plugins"]
        for plugin in listed:
            for setting in plugin["settings"]:
                self.line(text, setting["key"])

    def test_list_names_missing_folders(self):
        listed = self.tutti("plugin", "list", "--set", "plugins.path=[/no/such/folder]")
        self.assertIn("plugins.path (command line) names /no/such/folder, which is no folder", listed.stderr)

    def test_the_origin_of_a_file_that_cannot_be_read_is_named(self):
        says = "cannot read the configuration file missing.yaml: No such file or directory; check the path"
        for command in (("config", "show"), ("bench", "all_reduce")):
            for variable in ("TUTTI_SITE_CONFIG", "TUTTI_CONFIG"):
                self.assertEqual(self.error_of(*command, **{variable: "missing.yaml"}),
                                 f"tutti: not found: {variable}: {says}")
            self.assertEqual(self.error_of(*command, "--config", "missing.yaml"),
                             f"tutti: not found: --config: {says}")
        self.assertEqual(self.error_of("config", "check", "missing.yaml"), f"tutti: not found: {says}")

    def test_a_section_is_no_setting(self):
        error = self.error_of("bench", "all_reduce", "--set", "timeouts=30s")
        self.assertIn("'timeouts' is a section, not a setting; its settings are timeouts.bootstrap, ", error)

    def test_bench_and_tune_follow_the_device_of_the_configuration(self):
        self.write("device: cuda\n")
        for command in (("bench", "all_reduce"), ("tune",)):
            result = self.tutti(*command, "--config", "job.yaml", "--max", "8")
            self.assertNotEqual(result.returncode, 0, result.stdout)
            self.assertRegex(result.stderr, "cuda is not in this build|cannot use a CUDA device")
        self.run_ok("bench", "all_reduce", "--config", "job.yaml", "--device", "host", "--max", "8", "--iters", "2",
                    "--repeat", "1")

    def test_an_id_without_a_rank(self):
        result = self.tutti("bench", "all_reduce", TUTTI_ID="127.0.0.1:9:" + "0" * 32)
        self.assertEqual(result.returncode, 2)
        self.assertIn("an id (--id-file, TUTTI_ID) needs the number of this rank", result.stderr)

    def test_list_opens_networks_of_other_libraries(self):
        networks = ("--set", "plugins.network=[socket, nccl:/no/such/libnccl-net-x.so]")
        listed = self.tutti("plugin", "list", "--check", "--json", *networks)
        self.assertEqual(listed.returncode, 1)
        last = json.loads(listed.stdout)["plugins"][-1]
        self.assertEqual(last["file"], "nccl:/no/such/libnccl-net-x.so")
        self.assertIn("/no/such/libnccl-net-x.so", last["refused"])
        self.assertNotIn("nccl:", self.run_ok("plugin", "list", *networks).stdout)

    def test_earlier_values_have_their_origins(self):
        self.write("shm.slots: 4\n", "site.yaml")
        self.write("# job\nshm.slots: 6\n")
        extra = {"TUTTI_SITE_CONFIG": "site.yaml", "TUTTI_SHM_SLOTS": "7"}
        command = ("config", "show", "--config", "job.yaml", "--set", "shm.slots=16")
        self.assertEqual(self.line(self.run_ok(*command, **extra).stdout, "shm.slots"),
                         (["16", "command line"],
                          ["  overrides 7 (environment TUTTI_SHM_SLOTS)", "  overrides 6 (job job.yaml:2:1)",
                           "  overrides 4 (site site.yaml:1:1)", "  overrides 8 (built-in)"]))
        document = json.loads(self.run_ok(*command, "--json", **extra).stdout)
        slots = next(entry for entry in document["settings"] if entry["key"] == "shm.slots")
        self.assertEqual(slots["overrides"][1], {"value": "6", "origin": "job job.yaml:2:1"})

    def test_what_is_wrong_is_shown_and_said(self):
        result = self.tutti("config", "show", "--set", "algorithm=rnig")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.line(result.stdout, "algorithm")[0], ["rnig", "command line"])
        self.assertIn("command line: algorithm: there is no algorithm plugin 'rnig'; did you mean 'ring'?",
                      result.stderr)

    def test_rules_are_shown_whole(self):
        self.write("rules:\n  - match: {collective: all_reduce, max_size: 64KiB}\n    choose: {algorithm: ring}\n"
                   "  - forbid: {protocol: ll}\n")
        rules = (("match {collective: all_reduce, max_size: 64KiB} choose {algorithm: ring}", "job.yaml:2:5"),
                 ("match {} forbid {protocol: ll}", "job.yaml:4:5"))
        command = ("config", "show", "--config", "job.yaml")
        shown = re.findall(r"(?m)^rules  +(.*\S)  +(\S+)$", self.run_ok(*command).stdout)
        self.assertEqual(shown, list(rules))
        self.assertEqual(json.loads(self.run_ok(*command, "--json").stdout)["rules"],
                         [{"rule": rule, "origin": place} for rule, place in rules])

    def output_of(self, *arguments, **extra):
        """Stdout and stderr through one pipe."""
        return subprocess.run([TUTTI, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, cwd=self.folder, env=clean_environment() | extra, timeout=TIMEOUT_S,
                              stdin=subprocess.DEVNULL).stdout

    def test_the_error_comes_behind_the_values(self):
        lines = self.output_of("config", "show", "--set", "net.inside_rack=ib").splitlines()
        self.assertRegex(lines[-1], "^tutti: configuration error: .*net.racks names no rack")
        self.write("this is no plugin", "tutti-net-broken.so")
        lines = self.output_of("config", "show", TUTTI_PLUGIN_PATH=str(self.folder)).splitlines()
        self.assertRegex(lines[-1], "^tutti: warning: TUTTI-P02 ")

    def test_a_plugin_that_cannot_be_read_is_named(self):
        self.write("this is no plugin", "tutti-net-broken.so")
        result = self.run_ok("config", "show", TUTTI_PLUGIN_PATH=str(self.folder))
        self.assertRegex(result.stderr, r"^tutti: warning: TUTTI-P02 .*/tutti-net-broken\.so .*; its settings are not")


class Ranks(ConfigTest):
    """A job with a wrong name fails with one sentence, before ranks start."""

    def test_names_in_one_sentence(self):
        for setting, says in (("algorithm=rnig", "did you mean 'ring'?"), ("protocol=lll", "did you mean 'll'?"),
                              ("network=sokcet", "did you mean 'socket'?"),
                              ("algorithm=direct/oneshot", "did you mean 'direct/one-shot'?"),
                              ("settings.net.sokcet.streams=3", "did you mean 'socket'?"),
                              ("protocoll=ll", "did you mean 'protocol'?")):
            for command in (("bench", "all_reduce"), ("bench", "all_reduce", "--threads"), ("explain", "all_reduce"),
                            ("tune",)):
                with self.subTest(f"{command} {setting}"):
                    error = self.error_of(*command, "--ranks", 4, "--set", setting)
                    self.assertTrue(error.startswith("command line: "), error)
                    self.assertIn(says, error)


    def test_variables_of_plugins_that_do_not_exist(self):
        for variable, guess in (("TUTTI_SETTINGS_NET_SOKCET_STREAMS", "socket"),
                                ("TUTTI_SETTINGS_NETT_SOCKET_STREAMS", "NET")):
            error = self.error_of("bench", "all_reduce", *SMALL, **{variable: "3"})
            self.assertTrue(error.startswith(f"environment {variable}: "), error)
            self.assertIn(f"did you mean '{guess}'?", error)


class Networks(ConfigTest):
    def bench(self, *arguments, **extra):
        return self.tutti("bench", "all_reduce", "--hosts", "a,b", *SMALL, "--set", f"plugins.path={ZOO}",
                          *arguments, **extra)

    def test_auto_goes_on_to_the_next_that_works(self):
        result = self.bench("--set", "plugins.network=good,open_fails,socket", "--set", "log.level=info")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("net-socket", result.stdout)
        # 'good' loads and opens, but has no device; 'open_fails' does not open.
        for name, why in (("good", "cannot open a context"), ("open_fails", "the flux capacitor is cold")):
            self.assertRegex(result.stderr, rf"info 1/2 network '{name}' is passed over, .* rank 0: .*{why}")

    def test_a_network_must_work_on_all_ranks(self):
        result = self.bench("--set", "plugins.network=good,socket", "--set", "settings.net.socket.interface==absent0")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "no network works on all ranks: 'good' does not work on rank 0: .*"
                                        "'socket' does not work on rank 0: .*no network interface .*=absent0")

    def test_a_network_that_fails_on_one_rank_is_passed_over_by_all(self):
        meeting = f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"
        common = ("--ranks", 2, "--set", "plugins.network=socket,good", "--set", "log.level=info")
        interfaces = ("[]", "=absent0")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ranks = [pool.submit(self.bench, *common, "--rank", rank, "--set",
                                 f"settings.net.socket.interface={interfaces[rank]}", TUTTI_ID=meeting)
                     for rank in (0, 1)]
            for rank, result in enumerate(future.result() for future in ranks):
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertRegex(result.stderr,
                                 rf"info {rank}/2 network 'socket' is passed over, .* rank 1: .*=absent0")
                self.assertIn("'good' does not work on rank 0: ", result.stderr)

    def test_a_named_network_that_cannot_serve_is_an_error(self):
        for name, why in (("good", "cannot open a context"), ("open_fails", "the flux capacitor is cold")):
            result = self.bench("--set", f"network={name}", "--set", "plugins.on_missing=next")
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertIn(why, result.stderr)

    def test_rules_on_networks_concern_calls_that_use_one(self):
        for rule in ("forbid: {network: socket}", "choose: {network: socket}",
                     "forbid: {network: socket, protocol: ll}"):
            self.write(f"rules:\n  - {rule}\n")
            self.run_ok("bench", "all_reduce", "--config", "job.yaml", *SMALL)

    def test_a_rule_that_forbids_the_only_network_is_named(self):
        self.write("rules:\n  - match: {collective: all_reduce}\n    forbid: {network: socket}\n")
        result = self.tutti("bench", "all_reduce", "--config", "job.yaml", "--hosts", "a,b", *SMALL)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"job\.yaml:3:23: this rule forbids network 'socket' for all_reduce of \d+ × "
                                        r"float32, but the communicator has no other network; narrow 'match'")
        self.assertNotIn("excluded:", result.stderr)
        self.run_ok("bench", "all_gather", "--config", "job.yaml", "--hosts", "a,b", *SMALL)

    def test_a_network_that_rules_exclude_for_every_call_is_tried_last(self):
        for rule in ("forbid: {network: socket}", "choose: {network: good}"):
            self.write(f"rules:\n  - {rule}\n")
            result = self.bench("--config", "job.yaml", "--set", "plugins.network=socket,good", "--set",
                                "log.level=info")
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "info ./2 network 'good' is passed over, ")
            self.assertIn("job.yaml:2:23: this rule ", result.stderr)

    def test_a_rule_that_chooses_another_network_is_named(self):
        self.write(f"plugins: {{path: [{ZOO}], network: [socket, good]}}\nrules:\n"
                   "  - match: {collective: all_reduce}\n    choose: {network: good}\n")
        result = self.tutti("bench", "all_reduce", "--config", "job.yaml", "--hosts", "a,b", *SMALL)
        self.assertEqual(result.returncode, 1)
        self.assertIn("job.yaml:4:23: this rule chooses network 'good' for all_reduce", result.stderr)
        self.assertRegex(result.stderr, "but it does not work on rank [01]: unsupported: network 'good' ")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    TUTTI, ZOO, CONFIGS = sys.argv.pop(1), sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
    unittest.main()
