#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Variables named NCCL_* take effect where Tutti has the same, are named in the log where it has not, and lose against
Tutti's own. Asking for an id reads them all, and needs no GPU."""

import os
import subprocess
import sys
import tempfile


def run(program, **variables):
    """The log of a process that asks for an id."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "TUTTI_"))}
    done = subprocess.run([program, "unique_id"], env={**environment, **variables}, capture_output=True, text=True,
                          check=False, timeout=50)
    return done.returncode, done.stderr


def check(what, condition, details):
    if not condition:
        sys.exit(f"{what}: {details}")


def main(program):
    code, log = run(program)
    check("quiet by default", code == 0 and log == "", (code, log))

    code, log = run(program, NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5", NCCL_NVLS_ENABLE="0", NCCL_PROTO="LL128")
    check("without effect", code == 0 and "NCCL_IB_HCA, NCCL_NVLS_ENABLE" in log, log)
    check("named once", log.count("NCCL_IB_HCA") == 1, log)
    check("shown where it comes from", "protocol = ll128 (NCCL_PROTO=LL128)" in log, log)

    for value, setting in {"Ring,NVLS": "ring", "^Ring,PAT": "tree"}.items():
        code, log = run(program, NCCL_DEBUG="INFO", NCCL_ALGO=value)
        check("a list", code == 0 and f"algorithm = {setting} (" in log, (value, log))
    code, log = run(program, NCCL_DEBUG="INFO", NCCL_ALGO="^NVLS", NCCL_PROTO="^LL")
    check("a list that leaves all, and one that leaves some", "algorithm =" not in log and "NCCL_PROTO=^LL" in log, log)

    networks = (({"NCCL_NET_PLUGIN": "x,/opt/y.so"}, "plugins.network = [nccl:x, nccl:/opt/y.so, socket]"),
                ({"NCCL_NET_PLUGIN": "x", "NCCL_NET": "Socket"}, "network = socket"),
                ({"NCCL_NET_PLUGIN": "x", "NCCL_NET": "Cable"}, "network = nccl:x"),
                ({"NCCL_IGNORE_CPU_AFFINITY": "1"}, "affinity = ignore_mask"),
                ({"NCCL_NET": "UCX"}, "network = ucx"), ({"NCCL_TUNER_PLUGIN": "x"}, "plugins.tuner = [nccl:x]"))
    for variables, setting in networks:
        code, log = run(program, NCCL_DEBUG="INFO", **variables)
        check("networks", code == 0 and f"{setting} (" in log, (variables, log))
        # A file of this machine may also set variables without effect.
        without_effect = [line for line in log.splitlines() if "without effect" in line]
        check("effect", not any(name in line for name in variables for line in without_effect), (variables, log))
    code, log = run(program, NCCL_DEBUG="INFO", NCCL_NET_PLUGIN="none")
    check("no network", code == 0 and "network =" not in log, log)

    code, log = run(program, NCCL_ALGO="NVLS")
    check("nothing like it", code == 0 and "NCCL_ALGO=NVLS" in log, log)

    code, log = run(program, NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5", TUTTI_LOG_LEVEL="warn")
    check("Tutti's own variable wins", code == 0 and log == "", log)

    code, log = run(program, NCCL_SOCKET_IFNAME="=no-such-interface")
    check("interfaces", code != 0 and "no-such-interface" in log, log)

    with tempfile.TemporaryDirectory() as folder:
        code, log = run(program, NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5", NCCL_DEBUG_FILE=f"{folder}/log.%p")
        files = os.listdir(folder)
        check("file of the log", code == 0 and log == "" and len(files) == 1, (log, files))

    files_of_variables(program)
    common_id(program)


def files_of_variables(program):
    """Variables of the process win over variables of the user's file."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/nccl.conf"
        with open(file, "w", encoding="utf-8") as out:
            out.write("# NCCL_BUFFSIZE=1\nNCCL_DEBUG=INFO\nNCCL_MAX_CTAS=7\nNCCL_IB_HCA=mlx5\nNCCL_PROTO=LL\n")
        code, log = run(program, NCCL_CONF_FILE=file, NCCL_PROTO="Simple")
        check("a file named", code == 0 and "channels = 7 (NCCL_MAX_CTAS=7)" in log, log)
        check("the process wins", "protocol = simple (" in log and "protocol = ll (" not in log, log)
        check("without effect, in a file", "NCCL_IB_HCA" in log and "NCCL_BUFFSIZE" not in log, log)
        os.rename(file, f"{folder}/.nccl.conf")
        code, log = run(program, HOME=folder)
        check("the file in the user's folder", code == 0 and "channels = 7 (" in log, log)


def common_id(program):
    """NCCL_COMM_ID: the same id in every process, and nobody listens for it yet."""
    code, log = run(program, NCCL_COMM_ID="127.0.0.1:4321", NCCL_DEBUG="INFO")
    check("a common id", code == 1 and "ranks meet at" not in log, (code, log))  # 1: its two ids are equal
    check("no secret", log.count("NCCL_COMM_ID has no secret") == 1, log)
    code, log = run(program, NCCL_COMM_ID="127.0.0.1:4321", TUTTI_ID_SECRET="0123456789abcdef" * 2)
    check("a secret", code == 1 and "no secret" not in log, (code, log))
    code, log = run(program, NCCL_COMM_ID="127.0.0.1:4321", TUTTI_ID_SECRET="short")
    check("a short secret", code == 1 and "32 hexadecimal digits" in log, (code, log))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:  # has mode 0600
        file.write("0123456789abcdef" * 2 + "\n")
        file.flush()
        code, log = run(program, NCCL_COMM_ID="127.0.0.1:4321", TUTTI_ID_SECRET_FILE=file.name)
        check("a secret in a file", code == 1 and "no secret" not in log, (code, log))
        os.chmod(file.name, 0o644)
        code, log = run(program, NCCL_COMM_ID="127.0.0.1:4321", TUTTI_ID_SECRET_FILE=file.name)
        check("a secret for everybody", code == 1 and "other users may open it" in log, (code, log))
    code, log = run(program, NCCL_COMM_ID="nonsense")
    check("no address", code == 1 and "nonsense" in log, (code, log))


if __name__ == "__main__":
    main(sys.argv[1])
