"""Tests that examples/pytorch_pipeline has the same losses, bit for bit, with and without Perseus."""

import subprocess
import sys
import unittest

import perseus
from support import SOURCES, ScratchTest

TRAIN = SOURCES / "examples" / "pytorch_pipeline" / "train.py"
SMALL = ["--steps=3", "--microbatches=6", "--batch=2"]


def profile(stages):
    """Returns a profile similar to an A100: lower clocks take longer and use less energy."""
    return [
        (stage, kind, mhz, seconds * (0.3 + 0.7 * 1410 / mhz), seconds * 300 * (mhz / 1410) ** 1.5)
        for stage in range(stages)
        for kind, seconds in [("forward", 0.010), ("backward", 0.020)]
        for mhz in range(900, 1411, 30)
    ]


class ExampleTest(ScratchTest):
    def train(self, name, *flags):
        losses = self.scratch / name
        done = subprocess.run(
            [sys.executable, TRAIN, *SMALL, f"--losses={losses}", *map(str, flags)],
            cwd=self.scratch,
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return losses.read_text().split(), done

    def test_losses_are_the_same_bit_for_bit(self):
        plan = self.scratch / "plan.json"
        perseus.plan(profile(4), schedule="1f1b", microbatches=6, blocking_power_w=80).save(plan)
        without, _ = self.train("without", "--without-perseus")
        measured, done = self.train("measured", "--measure")
        planned, done_planned = self.train("planned", f"--plan={plan}")
        self.assertEqual(len(without), 3)
        self.assertEqual(without, measured)
        self.assertEqual(without, planned)
        # The model trains: its three losses differ.
        self.assertEqual(len(set(without)), 3)
        self.assertEqual(done.stdout.count("hooks took"), 4)
        # Each rank followed the plan, so no rank warns.
        self.assertNotIn("the plan has", done_planned.stderr)

    def test_a_plan_of_another_schedule_is_a_warning(self):
        plan = self.scratch / "plan.json"
        perseus.plan(profile(4), schedule="gpipe", microbatches=6, blocking_power_w=80).save(plan)
        _, done = self.train("losses", f"--plan={plan}")
        self.assertIn("the plan has", done.stderr)


if __name__ == "__main__":
    unittest.main()
