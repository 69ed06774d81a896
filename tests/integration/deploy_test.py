#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of examples/deploy as jobs on this machine: the commands and variables of each file run as processes.

A pod of Kubernetes, or a service of Docker Compose, is a process with the variables of its container and with a host
name of its own (TUTTI_HOST). A script stands for ssh. scripts/slurm_check.sh runs the file for Slurm.

Run as: deploy_test.py PATH_OF_TUTTI SOURCE_DIR [--pmix], with --pmix if the build has PMIx.
"""

import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

from run_tool import free_port

TUTTI = pathlib.Path("tutti")
SOURCE = pathlib.Path(".")
HAS_PMIX = False
TIMEOUT_S = 60
SMALL_BENCH = "--min 1K --max 4K --iters 2 --repeat 1 --csv"
ROW = "4096,1024,float32,sum"
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "TUTTI_")
# Open MPI 4.1 maps its copy of the topology at an address that it finds free, which crashed in few runs.
NO_SHARED_TOPOLOGY = {"OMPI_MCA_rtc_hwloc_vmhole": "none"}
# Runs the command of a host in a shell of this machine, in a folder for the host.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do
  [[ $1 != -[op] ]] || shift
  shift
done
mkdir -p "$(dirname "$0")/$1" && cd "$(dirname "$0")/$1" || exit 255
TUTTI_HOST=$1 exec bash -c "${*:2}"
"""


def environment(**variables):
    plain = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    return plain | {"TUTTI_BOOTSTRAP_INTERFACE": "[=lo]", "PATH": f"{TUTTI.parent}:{plain['PATH']}"} | variables


def read(name):
    return (SOURCE / "examples/deploy" / name).read_text(encoding="utf-8")


def small(command):
    """The command of a container with a small benchmark: `tutti bench all_reduce` gets limits."""
    return [re.sub(r"\btutti bench all_reduce$", rf"\g<0> {SMALL_BENCH}", word) for word in command] + (
        SMALL_BENCH.split() if command[-3:] == ["tutti", "bench", "all_reduce"] else [])


class Deploy(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="tutti-deploy-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_pods(self, pods):
        """Runs (name, command, variables) of each pod at once. The job is one job, and rank 0 writes its table."""
        addresses = {variables["MASTER_ADDR"] for _, _, variables in pods}
        ports = {variables["MASTER_PORT"] for _, _, variables in pods}
        self.assertEqual((len(addresses), len(ports)), (1, 1), pods)
        here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port() - 1)}  # for the pod's name and its port
        processes = [subprocess.Popen(small(command), env=environment(**(variables | here), TUTTI_HOST=name),
                                      text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE) for name, command, variables in pods]
        try:
            results = [(*process.communicate(timeout=TIMEOUT_S), process.returncode) for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        for rank, (output, errors, code) in enumerate(results):
            self.assertEqual((code, errors), (0, ""), output)  # no warning: the file carries the secret
            self.assertEqual(ROW in output, rank == 0, output)

    def test_jobset(self):
        jobset = yaml.safe_load(read("jobset.yaml"))
        self.assertEqual((jobset["apiVersion"], jobset["kind"]), ("jobset.x-k8s.io/v1alpha2", "JobSet"))
        (replicated,) = jobset["spec"]["replicatedJobs"]
        job = replicated["template"]["spec"]
        self.assertEqual((job["completionMode"], job["parallelism"]), ("Indexed", job["completions"]))
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        self.assertIn(pod["restartPolicy"], ("Never", "OnFailure"))  # a job of Kubernetes allows no other policy
        variables = {}
        for entry in container["env"]:
            if "value" in entry:
                self.assertIsInstance(entry["value"], str, entry)  # Kubernetes refuses a number
                variables[entry["name"]] = entry["value"]
            else:
                self.assertEqual(set(entry["valueFrom"]["secretKeyRef"]), {"name", "key"})
                variables[entry["name"]] = secrets.token_hex(16)
        first = f"{jobset['metadata']['name']}-{replicated['name']}-0-0.{jobset['metadata']['name']}"
        self.assertEqual(variables["MASTER_ADDR"], first)
        self.assertEqual(variables["WORLD_SIZE"], str(job["completions"]))
        # Kubernetes sets JOB_COMPLETION_INDEX in each pod of an indexed job.
        self.run_pods([(f"pod{index}", container["command"], variables | {"JOB_COMPLETION_INDEX": str(index)})
                       for index in range(job["completions"])])

    def test_compose(self):
        text = read("compose.yaml")
        self.assertIn("${SECRET:?}", text)
        services = yaml.safe_load(text.replace("${SECRET:?}", secrets.token_hex(16)))["services"]
        pods = sorted(services.items(), key=lambda item: int(item[1]["environment"]["RANK"]))
        for name, service in pods:
            variables = service["environment"]
            self.assertTrue(all(isinstance(value, str) for value in variables.values()), variables)
            self.assertEqual(variables["WORLD_SIZE"], str(len(pods)), name)
            self.assertEqual(variables["MASTER_ADDR"], pods[0][0], "the service of rank 0")
        self.run_pods([(name, service["command"], service["environment"]) for name, service in pods])

    def write_ssh(self):
        ssh = self.folder / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        return ssh

    def run_job(self, command, **variables):
        variables = environment(**variables)
        variables["PATH"] = f"{self.folder}:{variables['PATH']}"
        done = subprocess.run(command, env=variables, cwd=self.folder, capture_output=True, text=True,
                              timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count(ROW), 1, done.stdout + done.stderr)
        return done

    def test_mpijob(self):
        if shutil.which("mpirun") is None or not HAS_PMIX:
            self.skipTest("needs mpirun, and a build with PMIx")
        job = yaml.safe_load(read("mpijob.yaml"))
        self.assertEqual((job["apiVersion"], job["kind"]), ("kubeflow.org/v2beta1", "MPIJob"))
        spec = job["spec"]
        launcher, workers = (spec["mpiReplicaSpecs"][kind] for kind in ("Launcher", "Worker"))
        (container,) = launcher["template"]["spec"]["containers"]
        command = container["command"]
        ranks = spec["slotsPerWorker"] * workers["replicas"]
        self.assertEqual(command[:3], ["mpirun", "-n", str(ranks)])
        # The operator states the workers and the program that starts their processes by these variables.
        self.write_ssh()
        name = job["metadata"]["name"]
        (self.folder / "hostfile").write_text("".join(
            f"{name}-worker-{index}.{name} slots=2\n" for index in range(workers["replicas"])))
        command[2] = str(2 * workers["replicas"])  # the machine of this test has few processors
        done = self.run_job(small(command), OMPI_MCA_orte_default_hostfile=str(self.folder / "hostfile"),
                            OMPI_MCA_plm_rsh_agent=str(self.folder / "ssh"), OMPI_MCA_orte_keep_fqdn_hostnames="true",
                            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **NO_SHARED_TOPOLOGY)
        self.assertTrue((self.folder / f"{name}-worker-0.{name}").is_dir(), done.stderr)

    def test_hosts_of_ssh(self):
        self.write_ssh()
        hosts = [line for line in read("hosts.txt").splitlines() if not line.startswith("#")]
        for line in hosts:
            self.assertRegex(line, r"^\w+ slots=\d+$")
        (self.folder / "hosts.txt").write_text(re.sub(r"slots=\d+", "slots=2", read("hosts.txt")))
        self.run_job([TUTTI, "bench", "all_reduce", *SMALL_BENCH.split(), "--ssh", "hosts.txt"])
        self.assertEqual([(self.folder / line.split()[0]).is_dir() for line in hosts], [True] * len(hosts))

    def test_ssh_by_hand(self):
        self.write_ssh()
        script = read("ssh_by_hand.sh")
        self.assertEqual(script.count("bench all_reduce"), 1)
        limited = self.folder / "ssh_by_hand.sh"
        limited.write_text(script.replace("bench all_reduce", f"bench all_reduce {SMALL_BENCH}"))
        self.run_job(["bash", str(limited), "127.0.0.1", "127.0.0.2"], PORT=str(free_port()))
        for host in ("127.0.0.1", "127.0.0.2"):
            self.assertEqual((self.folder / host / "tutti.id").stat().st_mode & 0o777, 0o600)

    def test_the_image_has_all_libraries(self):
        """Each library of a distribution that Tutti links is in a package of the image, or in one that these need."""
        stage = read("Dockerfile").split("FROM ")[-1].replace("\\\n", " ")
        listed = re.search(r"apt-get install -y --no-install-recommends ([^&]+)&&", stage)[1].split()
        self.assertGreater(len(listed), 5)
        build = TUTTI.parent.parent
        linked = {}
        for file in (TUTTI, *build.glob("lib/*.so*"), *build.glob("lib/tutti/plugins/*.so")):
            found = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
            for library in re.findall(r"=> (/\S+)", found):
                linked[pathlib.Path(library).resolve()] = file.name
        owners = {}
        for library, file in linked.items():
            owner = subprocess.run(["dpkg", "-S", library], capture_output=True, text=True, check=False).stdout
            if owner:  # others are of the build
                owners[owner.split(":")[0]] = file
        self.assertIn("libfmt9", owners)
        present = set()
        to_visit = list(listed)
        while to_visit:
            package = to_visit.pop()
            if package in present:
                continue
            present.add(package)
            needs = subprocess.run(["dpkg-query", "-W", "-f=${Depends},${Pre-Depends}", package], capture_output=True,
                                   text=True, check=False).stdout  # empty: not installed here
            to_visit += re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", needs)
        self.assertEqual({package: file for package, file in owners.items() if package not in present}, {})

    def test_the_image_has_pmix(self):
        """Tutti loads PMIx while it runs, so ldd does not name it. Commands of ssh find tutti in /usr/local/bin."""
        build, image = read("Dockerfile").split("FROM ")[1:]
        self.assertIn(" libpmix-dev ", build)
        self.assertIn(" libpmix2 ", image)
        self.assertIn("ln -s /opt/tutti/bin/tutti /usr/local/bin/tutti", image)

    def test_the_page_shows_the_files(self):
        page = (SOURCE / "docs/deploy.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```\w+\n(.*?)```", page, re.DOTALL)
        for file in sorted((SOURCE / "examples/deploy").iterdir()):
            self.assertTrue(f"(../examples/deploy/{file.name})" in page, f"docs/deploy.md links no {file.name}")
            self.assertTrue(read(file.name) in blocks, f"docs/deploy.md shows no {file.name} as it is")


if __name__ == "__main__":
    HAS_PMIX = "--pmix" in sys.argv
    TUTTI, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1], verbosity=2)
