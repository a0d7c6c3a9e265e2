"""A training job of a real framework on virtual GPUs, with a real agent, under `perseus run --tune`.

The job computes on virtual GPUs (perseus.virtual), which know nothing of the adapter. It runs in
virtual time, so its results do not depend on other programs.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

# More than a job in virtual time makes until it is verified, however busy the machine is.
MANY_STEPS = 10_000
PROGRAM = os.environ.get("PERSEUS_PROGRAM", "perseus")
NODE = """name = "box"
gpus = {ranks}
clock = "job.clock"
[gpu]
profile = "truth.csv"
blocking_power_w = 84.0
time_noise = 0.002
power_noise = 0.005
[switch_latency]
median_ms = 2.0
spread = 0.3
"""


class ClosedLoopTest(unittest.TestCase):
    RANKS = 4
    BUDGET_STEPS = 24
    VERIFY_STEPS = 36
    TUNE_FLAGS = ()

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)
        self.job = self.scratch / "job"
        (self.scratch / "node.toml").write_text(NODE.format(ranks=self.RANKS))

    def synthesize(self, *flags):
        """Makes truth.csv, which only the virtual GPUs read."""
        self.perseus("synth", "--gpu=a100", f"--stages={self.RANKS}", *flags, "-o", "truth.csv")

    def perseus(self, *arguments):
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)], cwd=self.scratch, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, self.logs() + done.stderr)
        return done.stdout

    def logs(self):
        logs = [*self.scratch.glob("*.log"), *self.job.glob("*.log")]
        return "".join(f"--- {log.name}\n{log.read_text()[-4000:]}" for log in logs)

    def start(self, name, command, **environment):
        log = open(self.scratch / f"{name}.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=self.scratch,
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self.addCleanup(self.stop, process)
        return process

    @staticmethod
    def stop(process):
        if process.poll() is None:
            process.terminate()
            process.wait(60)

    def environment(self):
        return {
            "OMP_NUM_THREADS": "1",
            "PERSEUS_DEVICES": f"virtual:{self.scratch / 'node.toml'}",
            "PERSEUS_AGENT": str(self.scratch / "agent.sock"),
        }

    def start_agent(self):
        flags = ["--socket=agent.sock", "--state=agent.json", "--metrics=off"]
        self.start("agent", [PROGRAM, "agent", "--devices=virtual:node.toml", *flags])
        deadline = time.monotonic() + 30
        while not (self.scratch / "agent.sock").exists():
            self.assertLess(time.monotonic(), deadline, self.logs())
            time.sleep(0.05)

    def tune_and_check(self, script, *arguments):
        """From nothing to a verified saving: `perseus run --tune` around an unchanged program.

        The job saves energy, and as much as was promised, to a percentage point. The measured saving
        varies, so the point counts from the ends of its interval.
        """
        verified = self.run_and_tune(script, *arguments)
        promised, measured = verified["promised_saving"], verified["saving"]
        keeps_promise = measured["lower"] - 0.01 < promised < measured["upper"] + 0.01
        self.assertTrue(measured["lower"] > 0 and keeps_promise, f"{verified}\n{self.logs()}")
        return verified

    def run_and_tune(self, script, *arguments):
        """Returns what the verification found. The program trains until then."""
        run = self.start_run(script, *arguments)
        verified = self.await_verification(run)
        self.stop(run)
        return verified

    def start_run(self, script, *arguments):
        return self.start(
            "run",
            [PROGRAM, "run", "--tune", f"--job-directory={self.job.name}", "--switch-latency=2",
             "--assignment-delay=0.4", f"--budget-steps={self.BUDGET_STEPS}", "--follow-steps=6",
             f"--verify-steps={self.VERIFY_STEPS}", *self.TUNE_FLAGS, "--",
             sys.executable, "-m", "torch.distributed.run", "--standalone",
             f"--nproc-per-node={self.RANKS}", script, *arguments],
            **self.environment(),
        )  # fmt: skip

    def await_verification(self, run):
        verified = None
        deadline = time.monotonic() + 600
        while verified is None and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5)
            verified = self.read_json(self.job / "verify.json")
        if verified is None:
            self.stop(run)
        self.assertIsNotNone(verified, self.logs())
        summary = {key: verified[key] for key in ("saving", "slowdown", "promised_saving")}
        print(json.dumps(summary), file=sys.stderr)
        return verified

    @staticmethod
    def read_json(file):
        """None until the file is complete."""
        try:
            return json.loads(file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
