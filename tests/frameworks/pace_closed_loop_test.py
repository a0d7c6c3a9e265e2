"""A GPU becomes hot while a job without a pipeline trains: 4 ranks with DDP, under perseus run --tune.

The plans of the others follow it: they save energy while it is slow, and cost no time after it has
cooled down. The losses do not change.
"""

import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import unittest

from closed_loop import ClosedLoopTest
from works import works

HERE = pathlib.Path(__file__).parent
TRAIN = pathlib.Path(os.environ["PERSEUS_SOURCES"]) / "examples" / "torch_training" / "train.py"
ARGUMENTS = ["--wrap=ddp", "--gpu-profile=truth.csv", "--accumulate=4"]
HOT_RANK = 1
SLOWDOWN = 1.15


class Log:
    """The steps of a rank: when each began, its assignment, and the counter of energy."""

    def __init__(self, path):
        self.begins, self.versions, self.energies = {}, {}, []
        with open(path) as file:
            for line in file:
                try:
                    record = json.loads(line)
                except json.JSONDecodeError:
                    continue  # The rank still writes it.
                if "step" not in record:
                    continue
                number, begin = record["step"], record["begin_ns"]
                self.begins[number], self.versions[number] = begin, record["assignment_version"]
                self.energies += [(begin + until, joules) for _, until, joules in record["energy"]]

    def last(self):
        return max(self.begins, default=-1)

    def step_s(self, first, end):
        return statistics.median(
            (self.begins[step + 1] - self.begins[step]) / 1e9 for step in range(first, end)
        )

    def energy_of_a_step(self, first, end):
        """Of the steps [first, end): from their beginning to their end, between two samples."""

        def at(moment):
            later = next(i for i, (when, _) in enumerate(self.energies) if when >= moment)
            (t0, e0), (t1, e1) = self.energies[later - 1 : later + 1]
            return e0 + (e1 - e0) * (moment - t0) / (t1 - t0)

        return (at(self.begins[end]) - at(self.begins[first])) / (end - first)


class PaceClosedLoopTest(ClosedLoopTest):
    RANKS = 4
    BUDGET_STEPS = 30
    VERIFY_STEPS = 60

    def log(self, rank):
        return Log(self.job / "ranks" / f"dp{rank}-pp0-tp0.jsonl")

    def await_step(self, number):
        deadline = time.monotonic() + 300
        while self.log(0).last() < number:
            self.assertLess(time.monotonic(), deadline, self.logs())
            time.sleep(0.2)
        return self.log(0).last()

    def hot_clock(self):
        """The highest clock at which the rank is slower by the factor SLOWDOWN."""
        times = {}
        with open(self.scratch / "truth.csv") as file:
            for row in csv.DictReader(file):
                if row["stage"] == str(HOT_RANK):
                    clock = int(row["frequency"])
                    times[clock] = times.get(clock, 0) + float(row["time"])
        least = SLOWDOWN * min(times.values())
        return max(clock for clock, total in times.items() if total >= least)

    def losses(self, name):
        return re.findall(r"step (\d+): loss (\S+)", (self.scratch / f"{name}.log").read_text())

    @works("torch", "plans follow a GPU that becomes hot, DistributedDataParallel")
    def test_heat(self):
        self.synthesize("--work-scale=0.5", "--imbalance=0.05")
        self.start_agent()
        script = [HERE / "hot_training.py", self.scratch / "heat", TRAIN]
        run = self.start_run(*script, *ARGUMENTS, "--steps=100000")
        self.await_verification(run)
        began = self.await_step(self.log(0).last() + 40)
        (self.scratch / "heat.new").write_text(f"{HOT_RANK} {self.hot_clock()}")
        (self.scratch / "heat.new").rename(self.scratch / "heat")
        hot = self.await_step(began + 1)
        cooled = self.await_step(hot + 100)
        (self.scratch / "heat").unlink()
        end = self.await_step(cooled + 80)
        self.stop(run)
        self.check(began, hot, cooled, end)

    def check(self, began, hot, cooled, end):
        logs = [self.log(rank) for rank in range(self.RANKS)]
        # The first step in which the file had an effect.
        usual_s = logs[0].step_s(began - 30, began)
        times = [(step, logs[0].step_s(step, step + 1)) for step in range(began, end - 1)]
        slow = [step for step, seconds in times if seconds > usual_s * (1 + (SLOWDOWN - 1) / 2)]
        first, last = slow[0], slow[-1]
        changes = [
            step for step in range(began, end) if logs[0].versions[step] != logs[0].versions[step - 1]
        ]
        others = [rank for rank in range(self.RANKS) if rank != HOT_RANK]

        def of_others(begin, stop):
            return sum(logs[rank].energy_of_a_step(begin, stop) for rank in others)

        changed = next(step for step in changes if step > first)
        saving = 1 - of_others(first + 50, cooled) / of_others(first, changed)
        recovered_s = logs[0].step_s(cooled + 20, end - 1)
        summary = {
            "slow": [first, last],
            "cooled": cooled,
            "changes": changes,
            "slowdown_while_hot": logs[0].step_s(first + 50, cooled) / usual_s - 1,
            "saving_of_others_while_hot": saving,
            "slowdown_after": recovered_s / usual_s - 1,
        }
        print(json.dumps(summary), file=sys.stderr)
        self.assertLess(changed - first, 50, summary)
        self.assertGreater(saving, 0.05, summary)
        self.assertLess(last - cooled, 20, summary)
        self.assertLess(recovered_s / usual_s - 1, 0.003, summary)
        self.check_losses()

    def check_losses(self):
        """The losses are those of the same training without Perseus."""
        tuned = self.losses("run")
        self.assertGreater(len(tuned), 10)
        flags = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.RANKS}"]
        steps = 10 * (len(tuned) - 1) + 1
        with open(self.scratch / "plain.log", "w") as log:
            subprocess.run(
                [sys.executable, *flags, TRAIN, *ARGUMENTS, f"--steps={steps}"],
                cwd=self.scratch, stdout=log, stderr=log, check=True,
                env={**os.environ, **self.environment(), "PERSEUS_ATTACH": "off"},
            )  # fmt: skip
        self.assertEqual(tuned, self.losses("plain"))


if __name__ == "__main__":
    unittest.main()
