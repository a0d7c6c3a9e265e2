"""Runs a framework's own tests without and with `perseus run` around them, and compares test by test.

    own_tests.py fetch DIRECTORY           downloads PyTorch's tests, pytest and expecttest
    own_tests.py torch DIRECTORY           compares PyTorch's test_schedule.py, from there
    own_tests.py run DIRECTORY [--ranks N] PATH [ARGUMENT...]
                                           compares tests of a checkout of any framework, with
                                           pytest from DIRECTORY, and arguments of pytest:
                                           DeepSpeed/tests/unit/runtime/pipe/test_pipe_schedule.py
                                           With --ranks, torchrun starts N processes of pytest, on
                                           the CPU (own_tests_on_cpu.py). Megatron-core's tests
                                           want that.

Packages of the Python package index have no tests. Those of PyTorch come from Debian's source package,
which may be older than the installed PyTorch. Then tests fail because of the version, in both runs
alike. Two of the tests ask for a GPU. In the fetched copy they ask for the CPU.

Both runs have the same command, except for `perseus run --`. A run that does not end in LIMIT_S seconds
is an error.

Set PERSEUS_PROGRAM to the program, and PYTHONPATH to the package (build/release/python).
"""

import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ.get("PERSEUS_PROGRAM", "perseus")
LIMIT_S = 900
DEBIAN = "deb-src http://deb.debian.org/debian trixie main\n"


# ---- Fetch ----


def run(*command, **named):
    subprocess.run(list(map(str, command)), check=True, **named)


def fetch(directory):
    directory.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-m", "pip", "--quiet", "install", "--target", directory / "python", "pytest", "pytest-mock",
        "expecttest")  # fmt: skip
    fetch_torch(directory)


def fetch_torch(directory):
    """With apt, and settings of its own, so that the lists of this machine stay as they are."""
    apt = directory / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(DEBIAN)
    options = [f"-oDir::Etc::sourcelist={apt}/sources.list", "-oDir::Etc::sourceparts=-",
               f"-oDir::State::Lists={apt}/lists", f"-oDir::Cache={apt}/cache"]  # fmt: skip
    run("apt-get", "-qq", *options, "update")
    run("apt-get", "-qq", *options, "source", "--download-only", "pytorch", cwd=apt)
    (directory / "pytorch").mkdir(exist_ok=True)
    run("tar", "-xJf", next(apt.glob("pytorch_*.orig.tar.xz")), "-C", directory / "pytorch",
        "--strip-components=4", "--wildcards", "*/test/distributed/pipelining/*")  # fmt: skip
    (directory / "pytorch" / "__init__.py").unlink()  # test_schedule.py imports its neighbors.
    test = directory / "pytorch" / "test_schedule.py"
    text = test.read_text().replace('device = "cuda"', 'device = "cpu"')
    test.write_text(text.replace("    @requires_nccl()\n", ""))


# ---- Run and compare ----


def command_of(words, report, ranks, job):
    """`job`: the job directory of `perseus run`, or None to run without it."""
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    if ranks:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        pytest = [*launcher, *pytest, "-p", "own_tests_on_cpu"]
    around = [PROGRAM, "run", f"--job-directory={job}", "--"] if job else []
    return [*around, sys.executable, *pytest, *words]


def run_suite(words, path, report, directory, ranks, job):
    environment = {
        **os.environ,
        # Of both runs. In the cache of the user, a build that was killed leaves a lock, and DeepSpeed
        # then waits for it without end.
        "TORCH_EXTENSIONS_DIR": str(report.parent / "extensions"),
        "PYTHONPATH": os.pathsep.join([str(path), str(HERE), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "PERSEUS_AGENT": "off",
        "PERSEUS_DEVICES": "off",
    }
    log = report.with_suffix(".log")
    with open(log, "w") as file:
        process = subprocess.Popen(
            list(map(str, command_of(words, report, ranks, job))),
            env=environment, cwd=directory, stdout=file, stderr=file)  # fmt: skip
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun and `perseus run` end their processes.
            process.wait()
            raise SystemExit(f"own_tests.py: {words[0]} {'with' if job else 'without'} perseus run "
                             f"has not ended in {LIMIT_S} s\n{log.read_text()[-3000:]}") from None  # fmt: skip
    reports = list(report.parent.glob(report.name + "*"))
    if len(reports) < max(1, ranks):
        raise SystemExit(f"own_tests.py: pytest has not run\n{log.read_text()[-3000:]}")
    return outcomes(reports)


def outcomes(reports):
    """How often each test had each outcome. A test with subtests, or of several ranks, has several."""
    found = collections.defaultdict(collections.Counter)
    for case in (case for report in reports for case in xml.etree.ElementTree.parse(report).iter("testcase")):
        outcome = next((each.tag for each in case if each.tag in ("failure", "error", "skipped")), "passed")
        found[f"{case.get('classname')}.{case.get('name')}"][outcome] += 1
    return dict(found)


def steps_of(job):
    """How many training steps Perseus recorded, in the logs that are left at the end."""
    logs = job.glob("ranks/*.jsonl")
    return sum(len(log.read_text().splitlines()) - 1 for log in logs)


def compare(words, path, ranks=0):
    """Returns what both runs gave: tests by outcome, tests that differ, and the recorded steps."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        directory = pathlib.Path(words[0].partition("::")[0]).parent
        plain = run_suite(words, path, scratch / "plain.xml", directory, ranks, None)
        attached = run_suite(words, path, scratch / "attached.xml", directory, ranks, scratch / "job")
        differing = sorted(n for n in {*plain, *attached} if plain.get(n) != attached.get(n))
        totals = collections.Counter()
        for counts in plain.values():
            totals.update(counts)
        return {"same": len(plain) - len(differing), **totals, "differing": differing,
                "recorded_steps": steps_of(scratch / "job")}  # fmt: skip


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("fetch", "torch", "run"):
        raise SystemExit(__doc__)
    if shutil.which(PROGRAM) is None:
        raise SystemExit(f"own_tests.py: there is no program {PROGRAM} (set PERSEUS_PROGRAM)")
    directory = pathlib.Path(sys.argv[2]).absolute()
    if sys.argv[1] == "fetch":
        return fetch(directory)
    words, ranks = sys.argv[3:], 0
    if sys.argv[1] == "torch":
        words = [directory / "pytorch" / "test_schedule.py"]
    if words[0] == "--ranks":
        ranks, words = int(words[1]), words[2:]
    words[0] = str(pathlib.Path(words[0]).absolute())
    found = compare(words, directory / "python", ranks)
    print(json.dumps(found))
    return 1 if found["differing"] or not found.get("passed") else 0


if __name__ == "__main__":
    sys.exit(main())
