#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bandwidth by thread blocks: a collective with 1, 2, 4 ... blocks at most, Tutti beside a library with NCCL's API,
as a Markdown table.

Each row is one run of `tutti bench --device cuda --blocks N --compare LIBRARY`. A block takes an SM, or a share of one,
from the application. The last row sets no limit.
"""

import argparse
import json
import pathlib
import sys
import tempfile

from gpu_vs_nccl import COLLECTIVES, default_tutti, find_library, key_value, run_group, size_text

UNLIMITED = 0


def measure(args, collective, blocks, json_file):
    """The row of one run, or its failure."""
    json_file.unlink(missing_ok=True)
    command = [str(args.tutti), "bench", collective, "--device", "cuda", "--ranks", str(args.gpus), "--min", args.size,
               "--max", args.size, "--type", args.type, "--in-place", "no", "--json", str(json_file)]
    command += ["--blocks", str(blocks)] if blocks != UNLIMITED else []
    command += ["--graph"] if args.graph else []
    command += ["--register"] if args.register else []
    command += ["--compare", args.library] if args.library else []
    for setting in args.set:
        command += ["--set", setting]
    failure = run_group(command, args.limit)
    try:
        document = json.loads(json_file.read_text())
        return document, failure
    except (OSError, ValueError):
        return None, failure or "no results"


def bandwidths(row):
    """Bus bandwidth of Tutti and of the other library, GB/s; None where there is no other."""
    ours = row["busbw"]
    theirs = ours * row["time_us"] / row["their_time_us"] if "their_time_us" in row else None
    return ours, theirs


def heading(documents, args, collective):
    document = next(iter(documents.values()))
    names = " and ".join(f"{library['name']} {library['version']}" for library in document["libraries"])
    return (f"### {collective}, {size_text(document['results'][0]['bytes'])}, {args.gpus} GPUs\n\n"
            f"{names} on {document['device_name']}, {args.type}, {'replays of graphs' if args.graph else 'eager'}"
            f"{', registered buffers' if args.register else ''}. "
            "Bus bandwidth in GB/s, and what part of the best it is.\n")


def table(documents, args, collective):
    values = {blocks: bandwidths(document["results"][0]) for blocks, document in documents.items()}
    columns = [index for index in (0, 1) if any(value[index] for value in values.values())]
    best = {index: max(value[index] for value in values.values()) for index in columns}
    lines = [heading(documents, args, collective),
             "| blocks at most | " + " | ".join(("Tutti | of its best", "NCCL | of its best")[i] for i in columns)
             + " | ran |", "|---:|" + "---:|" * (2 * len(columns)) + "---|"]
    for blocks, value in values.items():
        cells = [cell for i in columns for cell in (f"{value[i]:.1f}", f"{100 * value[i] / best[i]:.0f} %")]
        wrong = documents[blocks]["wrong"] if documents[blocks]["complete"] else 0
        ran = documents[blocks]["results"][0]["ran"] + (f" ({wrong} wrong)" if wrong else "")
        lines.append("| " + " | ".join(["no limit" if blocks == UNLIMITED else str(blocks)] + cells + [ran]) + " |")
    return "\n".join(lines) + "\n"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", type=pathlib.Path, default=default_tutti(), help="the tool (default: build/cuda's)")
    parser.add_argument("--library", default=find_library(), help="empty: Tutti alone (default %(default)s)")
    parser.add_argument("--gpus", type=int, default=2, help="(default 2)")
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=["all_reduce"])
    parser.add_argument("--blocks", nargs="+", type=int, default=[1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64])
    parser.add_argument("--size", default="256M", help="(default 256M)")
    parser.add_argument("--type", default="float32", help="data type (default float32)")
    parser.add_argument("--graph", action="store_true", help="time replays of graphs")
    parser.add_argument("--register", action="store_true", help="register the buffers")
    parser.add_argument("--set", action="append", type=key_value, default=[], metavar="KEY=VALUE",
                        help="a setting of Tutti; may be repeated")
    parser.add_argument("--limit", type=int, default=60, metavar="SECONDS", help="of one row (default 60)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="also write the tables to FILE")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if not args.tutti.exists():
        sys.exit(f"{args.tutti} is missing; build it with ./dev build cuda")
    failures, tables = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for collective in args.collectives:
            documents = {}
            for blocks in [*args.blocks, UNLIMITED]:
                document, failure = measure(args, collective, blocks, pathlib.Path(folder) / "row.json")
                if document is not None and document["results"]:
                    documents[blocks] = document
                if failure:
                    failures += 1
                    print(f"{collective}, {blocks or 'no limit of'} blocks: {failure}", file=sys.stderr, flush=True)
            if documents:
                tables.append(table(documents, args, collective))
                print(tables[-1], flush=True)
            if args.out:
                args.out.write_text("\n".join(tables), encoding="utf-8")
    sys.exit(1 if failures or not tables else 0)


if __name__ == "__main__":
    main()
