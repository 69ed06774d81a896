#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Tutti's collectives on GPUs with the collectives of a library with NCCL's API, on this machine.

Each part (GPUs, collective, mode) is one run of `tutti bench --device cuda --compare LIBRARY`, which measures both
libraries batch by batch in turn and checks every result. A part that fails or outlasts its time limit leaves the rows
that it finished, and all other parts run. Sizes count as in nccl-tests: the larger buffer. If the ratio is above 1,
Tutti is faster.
"""

import argparse
import collections
import glob
import json
import math
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv"]
MODES = ["graph", "eager"]
LIBRARY = "libnccl.so.2"
PLACES = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib",
          "/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/cuda-*/lib64", "/usr/local/cuda-*/lib",
          "/opt/nccl/lib", "/usr/*/lib/python3*/*-packages/nvidia/nccl/lib",
          "/usr/lib/python3*/*-packages/nvidia/nccl/lib"]

Part = collections.namedtuple("Part", "gpus collective mode")
Outcome = collections.namedtuple("Outcome", "rows libraries device failure")  # failure: a line, or None


def is_own(path):
    """Whether this is Tutti's library of the same name: Tutti is not compared with itself."""
    return b"tutti" in pathlib.Path(path).read_bytes()


def find_library():
    """NCCL's library where it usually is: LD_LIBRARY_PATH, Python's packages, the system's folders; else its name."""
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    places += [f"{folder}/nvidia/nccl/lib" for folder in sys.path if folder.endswith("-packages")] + PLACES
    for place in filter(None, places):
        for path in sorted(glob.glob(f"{place}/{LIBRARY}")):
            if not is_own(path):
                return path
    return LIBRARY


def run_group(command, seconds):
    """Runs a command in a process group of its own, and ends all its processes. Returns the failure, or None."""
    environment = os.environ | {"NCCL_NVLS_ENABLE": "0"}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, start_new_session=True, env=environment) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return f"ended after {seconds} s: " + " | ".join(output.strip().splitlines()[-3:])
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode == 0:
        return None
    return f"exit code {process.returncode}: " + " | ".join(output.strip().splitlines()[-3:])


def command_of(args, part, json_file):
    command = [str(args.tutti), "bench", part.collective, "--device", "cuda", "--ranks", str(part.gpus),
               "--compare", args.library, "--min", args.min, "--max", args.max, "--factor", str(args.factor),
               "--type", args.type, "--in-place", args.in_place, "--json", str(json_file)]
    command += ["--graph"] if part.mode == "graph" else []
    command += ["--threads"] if args.threads else []
    for setting in args.set:
        command += ["--set", setting]
    return command + args.tutti_args


def measure(args, part, json_file):
    json_file.unlink(missing_ok=True)
    failure = run_group(command_of(args, part, json_file), args.limit)
    try:
        document = json.loads(json_file.read_text())
    except (OSError, ValueError):
        return Outcome([], [], "", failure or "no results")
    return Outcome(document["results"], document.get("libraries", []), document.get("device_name", ""), failure)


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def prefixes_of(row):
    """The buffers of a row: "" out of place, "in_place_" in place."""
    return [prefix for prefix in ("", "in_place_") if prefix + "ratio" in row]


def mean_of(rows):
    ratios = [row[prefix + "ratio"] for row in rows for prefix in prefixes_of(row)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def time_text(microseconds):
    return f"{microseconds:.2f}" if microseconds < 1000 else f"{microseconds:.0f}"


def cells_of(row, prefix):
    if row is None or prefix + "ratio" not in row:
        return ["–"] * 3
    wrong = row[prefix + "wrong"] + row[prefix + "their_wrong"]
    mark = f" ({wrong} wrong)" if wrong else ""
    return [time_text(row[prefix + "their_time_us"]), time_text(row[prefix + "time_us"]),
            f"{row[prefix + 'ratio']:.2f}{mark}"]


def mean_text(rows):
    mean = mean_of(rows)
    return "–" if mean is None else f"{mean:.3f}"


def table(gpus, collective, modes, outcomes):
    """The Markdown of one (GPUs, collective)."""
    parts = {mode: outcomes[Part(gpus, collective, mode)] for mode in modes if Part(gpus, collective, mode) in outcomes}
    by_size = {mode: {row["bytes"]: row for row in outcome.rows} for mode, outcome in parts.items()}
    rows = [row for outcome in parts.values() for row in outcome.rows]
    lines = [f"### {collective}, {gpus} GPUs", ""]
    for prefix in [p for p in ("", "in_place_") if any(p in prefixes_of(row) for row in rows)]:
        titles = [f"{mode}: {who}" for mode in parts for who in ("NCCL µs", "Tutti µs", "ratio")]
        place = "in place" if prefix else "size"
        lines += ["| " + " | ".join([place] + titles) + " |", "|" + "---:|" * (len(titles) + 1)]
        for size in sorted({row["bytes"] for row in rows}):
            cells = [cell for mode in parts for cell in cells_of(by_size[mode].get(size), prefix)]
            lines.append("| " + " | ".join([size_text(size)] + cells) + " |")
        lines.append("")
    for mode, outcome in parts.items():
        lines.append(f"{mode}: geometric mean {mean_text(outcome.rows)} over {len(outcome.rows)} sizes"
                     + (f"; stopped: {outcome.failure}" if outcome.failure else "") + "  ")
    return "\n".join(lines) + "\n"


def overview(modes, outcomes):
    """Geometric means of all parts."""
    tables = list(dict.fromkeys((part.gpus, part.collective) for part in outcomes))
    lines = ["### Geometric means (NCCL's time over Tutti's)", "",
             "| GPUs | collective | " + " | ".join(modes) + " |", "|---:|---|" + "---:|" * len(modes)]
    for gpus, collective in tables:
        found = [outcomes.get(Part(gpus, collective, mode)) for mode in modes]
        lines.append(f"| {gpus} | {collective} | "
                     + " | ".join(mean_text(outcome.rows) if outcome else "–" for outcome in found) + " |")
    means = [mean_text([row for part, outcome in outcomes.items() if part.mode == mode for row in outcome.rows])
             for mode in modes]
    lines.append("| | all | " + " | ".join(means) + " |")
    return "\n".join(lines) + "\n"


def heading(args, outcomes):
    known = [outcome for outcome in outcomes.values() if outcome.libraries]
    if not known:
        return f"Compared with {args.library}; nothing was measured.\n"
    names = ", compared with ".join(f"{library['name']} {library['version']}" for library in known[0].libraries)
    settings = f", settings {' '.join(args.set)}" if args.set else ""
    return (f"{names}, on {known[0].device}, {args.type}, {'threads' if args.threads else 'processes'}, "
            f"NCCL_NVLS_ENABLE=0{settings}. Median µs of one call, the slowest rank's.\n")


def report(args, outcomes):
    tables = dict.fromkeys((part.gpus, part.collective) for part in outcomes)
    texts = [heading(args, outcomes)] + [table(*key, args.modes, outcomes) for key in tables]
    return "\n".join(texts + [overview(args.modes, outcomes)])


def default_tutti():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = [root / "build" / preset / "bin/tutti" for preset in ("cuda", "release")]
    return next((path for path in found if path.exists()), found[0])


def key_value(text):
    if not re.match(r"[^=]+=", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not KEY=VALUE")
    return text


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", type=pathlib.Path, default=default_tutti(), help="the tool (default: build/cuda's)")
    parser.add_argument("--library", default=find_library(), help="(default %(default)s)")
    parser.add_argument("--gpus", nargs="+", type=int, default=[2], help="numbers of GPUs (default 2)")
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--min", default="8", help="smallest size (default 8)")
    parser.add_argument("--max", default="4G", help="largest size (default 4G)")
    parser.add_argument("--factor", type=int, default=4, help="from one size to the next (default 4)")
    parser.add_argument("--type", default="float32", help="data type (default float32)")
    parser.add_argument("--in-place", choices=["only", "both", "no"], default="no", help="(default no)")
    parser.add_argument("--threads", action="store_true", help="ranks are threads (default: processes)")
    parser.add_argument("--set", action="append", type=key_value, default=[], metavar="KEY=VALUE",
                        help="a setting of Tutti; may be repeated")
    parser.add_argument("--tutti-args", type=shlex.split, default=[], help="further arguments of tutti bench")
    parser.add_argument("--limit", type=int, default=120, metavar="SECONDS", help="of one part (default 120)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="also write the tables to FILE")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if not args.tutti.exists():
        sys.exit(f"{args.tutti} is missing; build it with ./dev build cuda")
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for gpus, collective in ((g, c) for g in args.gpus for c in args.collectives):
            for mode in args.modes:
                part = Part(gpus, collective, mode)
                outcomes[part] = measure(args, part, pathlib.Path(folder) / "part.json")
                if outcomes[part].failure:
                    print(f"{collective}, {gpus} GPUs, {mode}: {outcomes[part].failure}", file=sys.stderr, flush=True)
            print(table(gpus, collective, args.modes, outcomes), flush=True)
            if args.out:  # the present rows, in case this run is ended
                args.out.write_text(report(args, outcomes), encoding="utf-8")
    print(heading(args, outcomes))
    print(overview(args.modes, outcomes))
    sys.exit(1 if any(outcome.failure for outcome in outcomes.values()) else 0)


if __name__ == "__main__":
    main()
