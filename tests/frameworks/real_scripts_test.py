"""Loops and trainers as people use them (scripts/), unchanged, under `perseus run`, on virtual GPUs.

The scripts do not mention Perseus. Hugging Face, accelerate and Lightning run their own loops.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from closed_loop import MANY_STEPS, PROGRAM, ClosedLoopTest
from observed import read_log
from works import works

HERE = pathlib.Path(__file__).parent
ON_VIRTUAL_GPU = HERE / "on_virtual_gpu.py"
STEPS = 12
F0, B0, F1, B1, O0 = (0, 0), (1, 0), (0, 1), (1, 1), (5, 0)  # (kind, microbatch)


class RealScriptsTest(ClosedLoopTest):
    RANKS = 2
    VERIFY_STEPS = 60
    TUNE_FLAGS = ("--slowdown=5",)

    def setUp(self):
        super().setUp()
        # Steps take 0.3 to 1.2 s, because an energy counter changes every 0.1 s.
        self.synthesize("--work-scale=2", "--imbalance=0.05")

    def script(self, name, steps):
        return [ON_VIRTUAL_GPU, "truth.csv", HERE / "scripts" / name, str(steps), str(self.RANKS)]

    def run_alone(self, name, *launcher):
        """The output of the script, with PERSEUS_ATTACH=off if there is no launcher."""
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        done = subprocess.run(
            list(map(str, [*launcher, *torchrun, f"--nproc-per-node={self.RANKS}",
                           *self.script(name, STEPS)])),
            cwd=self.scratch,
            env={**os.environ, **self.environment(), "PERSEUS_AGENT": "off"},
            capture_output=True,
            text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        for file in self.scratch.glob("snapshot.pt"):
            file.unlink()
        return re.findall(r"^(?:loss|evaluation) .*$", done.stdout, re.MULTILINE), done.stderr

    def check(self, name, step):
        """Measured: each step has these instructions, and the losses are the same. Then tuned."""
        expected, _ = self.run_alone(name)
        losses, summary = self.run_alone(name, PROGRAM, "run", "--job-directory=measured", "--")
        self.assertEqual(losses, expected)
        self.assertGreater(len(losses), 0)
        self.assertRegex(summary, rf"perseus: {STEPS - 1} steps of 2 ranks, .* J a step")
        for rank in range(self.RANKS):
            _, steps = read_log(self.scratch / "measured" / "ranks" / f"dp{rank}-pp0-tp0.jsonl")
            recorded = [[(kind, i) for kind, i, *_ in one["instructions"]] for one in steps]
            self.assertEqual(recorded, [step] * (STEPS - 1))
        self.start_agent()
        verified = self.run_and_tune(*self.script(name, MANY_STEPS))
        self.assertGreater(verified["saving"]["lower"], 0)
        self.assertLess(verified["slowdown"]["estimate"], 0.06)
        self.assertEqual(len(json.loads((self.job / "tune.json").read_text())["outlook"]), 5)

    def test_the_status_has_the_saving_of_the_plan(self):
        self.start_agent()
        self.run_and_tune(*self.script("with_status.py", MANY_STEPS))
        log = (self.scratch / "run.log").read_text()
        self.assertRegex(log, r"J a token, .* W, the plan saves \d.* more time, .* saved so far")
        self.assertIn("'perseus/saving_lower_percent'", log)

    @works("transformers", "Trainer: tune and verify")
    def test_trainer(self):
        self.check("trainer.py", [F0, B0, F1, B1, O0])

    @works("accelerate", "the loop of accelerate: tune and verify")
    def test_accelerate(self):
        self.check("accelerated.py", [F0, B0, F1, B1, O0])

    @works("lightning", "Trainer.fit: tune and verify")
    def test_lightning(self):
        # Its optimizer gets a closure.
        self.check("lightning_fit.py", [F0, B0, F1, B1])

    @works("torch", "a loop with DDP, epochs and snapshots: tune and verify")
    def test_ddp(self):
        self.check("ddp_epochs.py", [F0, B0, O0])

    @works("torch", "a loop with fully_shard (FSDP2): tune and verify")
    def test_fsdp2(self):
        self.check("fsdp2.py", [F0, B0, O0])

    @works("torch", "a loop of small GPTs, with a scaler and evaluations: tune and verify")
    def test_gpt_loop(self):
        self.check("gpt_loop.py", [F0, B0, F1, B1, O0])


if __name__ == "__main__":
    unittest.main()
