"""perseus.status and perseus.progress: what the steps of a rank cost, and what the plan saves."""

import json
import os
import unittest
from unittest import mock

import perseus
from perseus import _status, trackers
from support import ScratchTest

NODE = """name = "box"
gpus = 1
clock = "job.clock"
[gpu]
profile = "truth.csv"
blocking_power_w = 84.0
"""
# Time stands still while Python computes, so the last step may not be in the numbers.
TRAINING = """
import csv, logging, os
os.environ["PERSEUS_DEVICES"] = f"virtual:{os.getcwd()}/node.toml"
import perseus, perseus.virtual
assert perseus.status() == perseus.Status()
perseus.progress(samples=1)  # Nothing is recorded yet.
profile = perseus.virtual.Profile("truth.csv")
gpu = perseus.virtual.gpu()
work = [(kind, profile.find(0, kind, 0)) for kind in ("forward", "backward")]
perseus.open(agent="off", job_directory=DIRECTORY)
for _ in range(30):
    with perseus.step():
        for i in range(4):
            for kind, instruction in work:
                with perseus.instruction(kind, microbatch=i):
                    gpu.compute(instruction)
            perseus.progress(samples=2)
            perseus.progress(tokens=512)
status = perseus.status()
rows = list(csv.DictReader(open("truth.csv")))
step_s, step_j = 0, 0
for kind, _ in work:
    fastest = max((row for row in rows if row["instruction"] == kind), key=lambda row: int(row["frequency"]))
    step_s += 4 * float(fastest["time"])
    step_j += 4 * float(fastest["energy"])
def near(a, b, part=0.02):
    assert abs(a / b - 1) < part, (a, b, status)
assert 25 <= status.steps <= 30, status
near(status.step_time_s, step_s)
near(status.energy_per_step_j, step_j)
near(status.power_w, step_j / step_s)
near(status.energy_per_sample_j, step_j / 8)
near(status.energy_per_token_j, step_j / 2048)
near(status.energy_j, 30 * step_j, 0.2)
assert status.saving is None and not status.follows_plan
print(status)
"""


def verified(saving, baseline_j):
    interval = {"estimate": saving, "lower": saving - 0.01, "upper": saving + 0.01}
    slowdown = {"estimate": 0.001, "lower": 0, "upper": 0.002}
    pairs = [{"baseline_energy_j": baseline_j + 10}, {"baseline_energy_j": baseline_j - 10}]
    return {"saving": interval, "slowdown": slowdown, "pairs": pairs}


class StatusTest(ScratchTest):
    def train(self, directory):
        self.run_program("synth", "--gpu", "a100", "--stages", "1", "-o", "truth.csv")
        (self.scratch / "node.toml").write_text(NODE)
        return self.run_python(TRAINING.replace("DIRECTORY", directory))

    def test_a_step_costs_what_the_gpu_needs(self):
        done = self.train("'job'")
        self.assertIn(" J a token", done.stdout)
        said = json.loads((self.scratch / "job" / "ranks" / "dp0-pp0-tp0.progress").read_text())
        self.assertEqual(said, {"perseus_progress": 1, "steps": 30, "samples": 240, "tokens": 61440})

    def test_it_needs_no_job_directory(self):
        self.train("None")

    def test_the_saving_is_that_of_verify_and_before_it_that_of_tune(self):
        tuned = verified(0.06, 0)
        tuned = {"saving_interval": tuned["saving"], "slowdown_interval": tuned["slowdown"],
                 "seen": {"baseline_energy_j": 100}}  # fmt: skip
        self.assertEqual(_status._result_of(self.scratch, 10), {})
        (self.scratch / "tune.json").write_text(json.dumps(tuned))
        found = _status._result_of(self.scratch, 10)
        self.assertFalse(found["is_verified"])
        self.assertAlmostEqual(found["saved_j"].estimate, 60)
        (self.scratch / "verify.json").write_text(json.dumps(verified(0.05, 200)))
        found = _status._result_of(self.scratch, 10)
        self.assertTrue(found["is_verified"])
        self.assertAlmostEqual(found["saving"].lower, 0.04)
        self.assertAlmostEqual(found["saved_j"].estimate, 100)
        self.assertAlmostEqual(found["saved_j"].upper, 120)

    def test_what_is_no_result_is_unknown(self):
        (self.scratch / "tune.json").symlink_to("/etc/passwd")
        os.mkfifo(self.scratch / "verify.json")
        self.assertEqual(_status._result_of(self.scratch, 10), {})
        (self.scratch / "verify.json").unlink()
        for text in ("", "[]", "{}", '{"saving": 1}', json.dumps({**verified(0.1, 1), "pairs": []})):
            (self.scratch / "verify.json").write_text(text)
            self.assertEqual(_status._result_of(self.scratch, 10), {}, text)

    def test_progress_never_raises(self):
        self.assertIsNone(perseus.progress(samples=1))
        with perseus.open(agent="off", devices="off", job_directory=self.scratch):
            with self.assertLogs("perseus", "WARNING") as logs:
                perseus.progress(samples="many")
                perseus.progress(tokens=0.5)
            self.assertEqual(len(logs.output), 1)

    def test_numbers_have_units_and_leave_out_what_is_unknown(self):
        self.assertEqual(perseus.Status().numbers(), {"perseus/steps": 0, "perseus/follows_plan": 0})
        status = perseus.Status(
            steps=7,
            step_time_s=0.5,
            energy_per_token_j=0.25,
            saving=perseus.Interval(0.05, 0.04, 0.06),
            slowdown=perseus.Interval(0.001, 0, 0.002),
            saved_j=perseus.Interval(100, 80, 120),
            follows_plan=True,
        )
        numbers = status.numbers()
        self.assertEqual(numbers["perseus/step_time_s"], 0.5)
        self.assertAlmostEqual(numbers["perseus/saving_lower_percent"], 4)
        self.assertEqual(numbers["perseus/saved_upper_j"], 120)
        self.assertEqual(numbers["perseus/follows_plan"], 1)
        self.assertNotIn("perseus/power_w", numbers)
        self.assertEqual(
            str(status),
            "0.5 s a step, 0.25 J a token, the plan saves 5.00% (4.00% to 6.00%) at 0.10% (0.00% to "
            "0.20%) more time, 100 J (80 to 120) saved so far",
        )


class ReportTest(unittest.TestCase):
    def report(self, every_s=0.0, send=None):
        sent = []
        report = trackers.Report(send or (lambda found, step: sent.append((found.steps, step))), every_s)
        known = perseus.Status(steps=7, step_time_s=0.5)
        patch = mock.patch.object(trackers, "status", lambda: known)
        patch.start()
        self.addCleanup(patch.stop)
        return report, sent

    def test_it_sends_at_most_every_so_often(self):
        report, sent = self.report(every_s=1000)
        for step in range(3):
            report(step)
        self.assertEqual(sent, [(7, 0)])
        report, sent = self.report()
        report(1)
        report()
        self.assertEqual(sent, [(7, 1), (7, 7)])

    def test_a_failure_is_one_warning(self):
        calls = []

        def fail(found, step):
            calls.append(step)
            raise ConnectionError("no network")

        report, _ = self.report(send=fail)
        with self.assertLogs("perseus", "WARNING") as logs:
            report(1)
            report(2)
        self.assertEqual((calls, len(logs.output)), ([1], 1))
        self.assertIn("no network", logs.output[0])

    def test_the_log_has_one_line(self):
        report = trackers.to_log(0)
        self.report()
        with self.assertLogs("perseus", "INFO") as logs:
            report(3)
        self.assertEqual(logs.output, ["INFO:perseus:perseus: step 3: 0.5 s a step"])

    def test_nothing_is_sent_before_something_is_known(self):
        with self.assertNoLogs("perseus"):
            trackers.to_log(0)(1)


if __name__ == "__main__":
    unittest.main()
