#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation's quotes: its commands run, its outputs are compared, its settings and code are checked.

Run as: docs_test.py PATH_OF_TUTTI SOURCE_DIR BUILD_DIR [unittest arguments]

Code blocks are indented. `$ ` begins a command that is followed by its output. In an output `...` stands for any text
of a line or, alone, for any lines; measured figures and runs of blanks may differ. A command whose output shows an
error must fail, every other command must succeed. A block without `$ ` is recognised by the first fitting entry of
BLOCKS. A command that cannot run here needs an entry of NOT_RUN; the test prints these commands.
"""

import dataclasses
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import docs_messages as messages
import docs_pages as pages

TIMEOUT_S = 60
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "examples/*/README.md", "plugins/*/README.md",
         "configs/*/README.md")
CODE = ("examples/**/*", "plugins/**/*.cpp")
# A benchmark without limits of its own gets these: the test needs no figures.
SMALL_BENCH = {"--max": "4K", "--iters": "2", "--repeat": "1"}
NO_GPU = re.compile(r"cuda is not in this build|cannot use a CUDA device")


@dataclasses.dataclass
class Skipped:
    """Commands that cannot run here."""
    reason: str
    commands: re.Pattern
    refusal: re.Pattern | None = None  # the command runs up to this error, which shows that its options are right
    used: bool = False


def not_run(reason, commands, refusal=None):
    return Skipped(reason, re.compile(commands), refusal)


NOT_RUN = (
    not_run("installs packages and builds", r"^\./dev "),
    not_run("needs four hosts", r"^mpirun .*--host node1,"),
    not_run("needs libnccl.so.2 of a build with CUDA", r"^ldd |build/cuda/lib/nccl"),
    not_run("needs NCCL", r"^(TUTTI_NET=\w+ )?NCCL_NET_PLUGIN=\S+/libnccl-net-tutti\.so my_program "),
    not_run("needs a GPU", r"^(build/(release|cuda)/bin/)?tutti .*--device cuda", NO_GPU),
    not_run("needs a plugin of NCCL", r"(network=|tuner=\[)nccl:/opt/",
            re.compile(r"plugin /opt/\S+ does not load: /opt/\S+: cannot open shared object file")),
    not_run("install_test.sh builds the example", r"^cmake -B build "),
)
RUNS = re.compile(r"^(\w+=\S+ )*((build/(release|cuda)/bin/)?tutti|sed|cat|echo) ")


def environment(tool):
    """No setting of the caller reaches the commands, and no GPU: a benchmark on it would take minutes."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
    return kept | {"PATH": f"{tool.parent}:{kept['PATH']}", "LC_ALL": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "",
                   "TUTTI_SITE_CONFIG": ""}


class Shell:
    """Runs commands in a folder that looks like the source tree after a build."""

    def __init__(self, folder, tool, source, build):
        self.folder, self.environment = folder, environment(tool)
        for preset in ("release", "cuda"):
            (folder / "build" / preset / "bin").mkdir(parents=True)
            (folder / "build" / preset / "bin/tutti").symlink_to(tool)
        for plugin in (build / "examples").glob("tutti-*.so"):
            (folder / "build" / plugin.name).symlink_to(plugin)
        (folder / "vendor").mkdir()
        plugin = "tutti-net-socket.so"
        (folder / "vendor" / plugin).write_bytes(of_abi_2((build / "lib/tutti/plugins" / plugin).read_bytes()))
        (folder / "configs").symlink_to(source / "configs")
        (folder / "examples").symlink_to(source / "examples")
        (folder / "plans").mkdir()
        (folder / "plans/mine.yaml").symlink_to(source / "examples/plans/doubling4.yaml")

    def run(self, command):
        """(exit code, lines of both outputs in order); ends all processes of a command that takes too long."""
        process = subprocess.Popen(["bash", "-c", command], cwd=self.folder, env=self.environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return -1, [f"no end after {TIMEOUT_S} s"]
        return process.returncode, output.splitlines()


def of_abi_2(plugin):
    """The plugin socket with the major number 2 of the ABI in its note."""
    note = re.compile(rb"(\x03\0{3})\x01\0(\0{2}\0{4}socket\0)", re.DOTALL)  # kind, major; minor, CUDA, name
    changed, count = note.subn(lambda found: found[1] + b"\x02\0" + found[2], plugin)
    assert count == 1, count
    return changed


def small(command):
    """The command with limits, where it is a benchmark without any."""
    if not re.search(r"\btutti bench ", command):
        return command
    command = command.split(" #")[0]
    return " ".join([command, *(f"{key} {value}" for key, value in SMALL_BENCH.items() if key not in command)])


def measured_in(quote):
    """The units whose figures differ from run to run in the output of this command."""
    return pages.MEASURED_RATES if re.search(r"tutti (bench|explain|tune)", quote.command) else pages.MEASURED


def quote_problem(shell, quote):
    """The difference between a quote and its command's output, empty if there is none."""
    code, lines = shell.run(quote.command if quote.output is not None else small(quote.command))
    fails = quote.output is not None and any(re.search(r"\berror\b|^tutti: ", line) for line in quote.output)
    if (code != 0) != fails:
        return "\n".join([f"exit code {code}", *lines])
    return pages.difference(quote.output, lines, measured_in(quote)) if quote.output is not None else ""


class DocsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tutti-docs-")
        cls.addClassCleanup(folder.cleanup)
        cls.shell = Shell(pathlib.Path(folder.name), TUTTI, SOURCE, BUILD)
        cls.pages = {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8")
                     for pattern in PAGES for path in sorted(SOURCE.glob(pattern))}

    def run_ok(self, command):
        code, lines = self.shell.run(command)
        self.assertEqual(code, 0, "\n".join([command, *lines]))
        return lines


class Blocks(DocsTest):
    """Every code block is of a known kind, and right."""

    def test_blocks(self):
        found = [block for page, text in self.pages.items() for block in pages.blocks(page, text)]
        self.assertGreater(len(found), 30)
        for block in found:
            with self.subTest(block.place):
                self.check(block)
        for skipped in NOT_RUN:
            self.assertTrue(skipped.used, f"no page has a command that {skipped.reason}: remove it from NOT_RUN")

    def check(self, block):
        if pages.is_session(block):
            for quote in pages.session_quotes(block):
                self.check_quote(quote)
            return
        for kind, check in BLOCKS.items():
            if re.search(kind, block.text):
                return check(self, block)
        self.fail(f"{block.place}: the test knows no such block; add its kind to BLOCKS:\n{block.text}")

    def check_steps(self, block):
        """Steps of a plan file: the reader of plan files knows each key."""
        sources = (SOURCE / "core/program/file").glob("read*.cpp")
        reader = "".join(source.read_text(encoding="utf-8") for source in sources)
        for line in block.text.splitlines():
            self.assertRegex(line, r"\A(?: *- \{.+\}|- (?:repeat|rank): \d+| *(?:- )?steps:| *strands:)\Z", block.place)
            for key in re.findall(r"(\w+):(?: |$)", line):
                self.assertIn(f'"{key}"', reader, block.place)

    def check_quote(self, quote):
        for skipped in NOT_RUN:
            if skipped.commands.search(quote.command):
                skipped.used = True
                return self.check_not_run(quote, skipped)
        self.assertRegex(quote.command, RUNS, f"{quote.place}: the test knows no such command; see RUNS and NOT_RUN")
        problem = quote_problem(self.shell, quote)
        if problem:
            self.fail(f"{quote.place}: $ {quote.command}\n{problem}")

    def check_not_run(self, quote, skipped):
        print(f"not run: {skipped.reason}: {quote.place}: {quote.command}")
        self.assertIsNone(quote.output, "the output of a command that does not run cannot be checked: remove it")
        if skipped.refusal:
            code, lines = self.shell.run(quote.command)
            self.assertNotEqual(code, 0, quote)
            self.assertRegex("\n".join(lines), skipped.refusal, quote)

    def check_commands(self, block):
        for quote in pages.command_quotes(block):
            self.check_quote(quote)

    def check_drawing(self, block):
        """A drawing or a formula says nothing that could be run."""

    def check_configuration(self, block):
        (self.shell.folder / "job.yaml").write_text(block.text)
        self.run_ok("tutti config check job.yaml")

    def check_table(self, block):
        (self.shell.folder / "table.yaml").write_text(block.text)
        lines = self.run_ok("tutti explain all_reduce --ranks 2 --set settings.tuner.table.file=$PWD/table.yaml")
        self.assertTrue(any("was measured elsewhere" in line for line in lines), lines)

    def check_code(self, block):
        files = [path.read_text(encoding="utf-8") for pattern in CODE for path in SOURCE.glob(pattern)
                 if path.is_file()]
        missing = pages.missing_part(block.lines, files)
        self.assertIsNone(missing, f"{block.place}: no file of {CODE} contains this part:\n{missing}")

    def check_message(self, block):
        for beginning, script in messages.SCRIPTS.items():
            if block.text.startswith(beginning):
                _, lines = self.shell.run(script.replace("MEETING", messages.meeting()))
                quoted, actual = (messages.without_actors(" ".join(text)) for text in (block.lines, lines))
                problem = pages.difference([f"...{quoted}..."], [actual])
                if problem:
                    self.fail(f"{block.place}:\n{problem}")
                return
        self.fail(f"{block.place}: the test cannot make this message; add it to docs_messages.py:\n{block.text}")


class Spans(DocsTest):
    """Code in a line: options of commands exist, settings take their values, files are there."""

    def spans(self, pattern):
        found = [(place, code) for page, text in self.pages.items() for place, code in pages.spans(page, text)
                 if re.search(pattern, code)]
        self.assertGreater(len(found), 5)
        return found

    @functools.cache
    def help_of(self, subcommand):
        return "\n".join(self.run_ok(f"tutti {subcommand} --help"))

    def test_options(self):
        for place, code in self.spans(r"^tutti \w"):
            with self.subTest(place):
                words = code.split()[1:]
                named = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
                text = self.help_of(named)
                for option in (word.split("=")[0] for word in words[1:] if word.startswith("-")):
                    self.assertRegex(text, rf"(?m)(^|[ ,]){re.escape(option)}\b", f"{place}: {code}")

    def test_options_alone(self):
        helps = "\n".join(self.help_of(command) for command in COMMANDS)
        for place, code in self.spans(r"^--\w"):
            if place.split(":")[0] in ("README.md", "docs/operator-guide.md", "docs/plugin-guide.md"):
                self.assertRegex(helps, rf"(?m)(^|[ ,]){re.escape(code.split()[0])}\b", f"{place}: {code}")

    def test_files(self):
        files = [f"/{path.relative_to(SOURCE)}" for top in SOURCE.iterdir() if top.name not in ("build", ".git")
                 for path in (top.rglob("*") if top.is_dir() else [top])]
        for place, code in self.spans(r"^\w[\w./-]*\.(h|c|cpp|cu|py|sh|md)$"):
            self.assertTrue(any(file.endswith(f"/{code}") for file in files), f"{place}: there is no file {code}")

    def test_settings(self):
        plugins = json.loads("\n".join(self.run_ok("tutti plugin list --check --json")))["plugins"]
        of_plugins = {key["key"] for plugin in plugins for key in plugin["settings"]}
        for place, code in self.spans(SETTING):
            if place.startswith("docs/plan-format.md") or NO_SETTING.search(code):
                continue
            with self.subTest(place):
                (self.shell.folder / "span.yaml").write_text(code)
                self.run_ok("TUTTI_PLUGIN_PATH=$PWD/build tutti config check span.yaml")
                if code.startswith("settings."):  # checked only when plugins are loaded
                    self.assertIn(code.split(":")[0], of_plugins, place)


class SelfTest(DocsTest):
    """The comparison notices each change of a quote."""

    def quote(self, command, *output):
        return quote_problem(self.shell, pages.Quote("page:1", command, output))

    def test_equal(self):
        self.assertEqual(self.quote("printf 'a  b\\nc\\n'", "a b", "c"), "")
        self.assertEqual(self.quote("printf 'a\\nb\\nc\\n'", "a", "...", "c"), "")
        self.assertEqual(self.quote("echo 12.5 µs for 3 ranks", "7 µs for 3 ranks"), "")
        self.assertEqual(self.quote("echo /one/x.so end", ".../x.so end"), "")
        self.assertEqual(self.quote("echo error; exit 1", "error"), "")

    def test_different(self):
        for command, *output in (("echo one", "two"), ("echo one; echo two", "one"), ("echo one", "one", "two"),
                                 ("echo 12.5 µs for 3 ranks", "12.5 µs for 4 ranks"), ("echo 1 ms", "1 µs"),
                                 ("echo 24 GB/s", "25 GB/s"), ("echo ABI 0.8", "ABI 0.6"), ("echo a; exit 1", "a"),
                                 ("echo error", "error"), ("printf 'a\\nc\\n'", "a", "...", "b")):
            with self.subTest(command):
                self.assertNotEqual(self.quote(command, *output), "")

    def test_each_quoted_line_of_the_pages_matters(self):
        sessions = [block for page, text in self.pages.items() for block in pages.blocks(page, text)
                    if pages.is_session(block)]
        self.assertGreater(len(sessions), 5)
        for quote in (quote for block in sessions for quote in pages.session_quotes(block)):
            _, lines = self.shell.run(quote.command)
            for number, line in enumerate(quote.output):
                if line.strip() not in ("", pages.ANY_LINES):
                    changed = [*quote.output[:number], line + " changed", *quote.output[number + 1:]]
                    difference = pages.difference(changed, lines, measured_in(quote))
                    self.assertNotEqual(difference, "", f"{quote.place}: {line}")

    def test_the_difference_shows_both(self):
        self.assertRegex(self.quote("echo actual", "quoted"), r"(?s)-quoted\n\+actual")

    def test_unknown_blocks_and_commands_fail(self):
        checks = Blocks()
        Blocks.shell = self.shell
        for text in ("    nothing that is known", "    $ rm -rf /tmp/nothing", "    tutti nonsense",
                     "    shm.slotts: 8", "    #include \"none.h\""):
            with self.subTest(text), self.assertRaises(AssertionError):
                checks.check(pages.blocks("page", text)[0])


# Code with a colon of other kinds: keys of plan files and tables, subjects of commits, beginnings of errors and logs.
NO_SETTING = re.compile(r"^(registered|area|timeout|unsupported|excluded|nccl): ")
COMMANDS = ("bench", "config check", "config show", "explain", "plan export", "plan print", "plan verify",
            "plugin list", "plugin new", "plugin test", "search", "topo check", "topo show", "tune")
SETTING = r"^[a-z_]+(\.[a-z_0-9]+)*: \S"
BLOCKS = {
    r"\A(?:\w+=\S+ )*(?:(?:build/(?:release|cuda)/bin/)?tutti|\./dev|cmake|my_program) ": Blocks.check_commands,
    "|".join(rf"\A{beginning}\b" for beginning in messages.SCRIPTS): Blocks.check_message,
    r"\A *(?:your program|application) ──|\AT = call": Blocks.check_drawing,
    r"\Atutti_table: 1": Blocks.check_table,
    r"\A[a-z_.]+:\s": Blocks.check_configuration,
    r"\A- (?:\{(?:recv|own)|repeat|rank): ": Blocks.check_steps,
    r"#include|\A(?:static|install|Result|Status)\b|cmake_minimum_required": Blocks.check_code,
}

if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    TUTTI, SOURCE, BUILD = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
    unittest.main()
