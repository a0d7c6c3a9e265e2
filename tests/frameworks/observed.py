"""What the tests of the adapters share: a training of real processes, with an observer in each.

A worker writes RESULTS/RANK.json: what its observer saw. Perseus writes rank logs beside it.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import perseus

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
HOOK = pathlib.Path(perseus.__file__).parent / "hook"
OFF = {"agent": "off", "devices": "off"}
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
KINDS = ["forward", "backward", "backward_input", "backward_weight", "recompute", "optimizer_step"]


def hooks_of(owner):
    """The names of the members that an adapter has set on an object, or on a class for it alone."""
    names = [name for name, value in vars(owner).items() if hasattr(value, "_perseus_before")]
    for cls in type(owner).__mro__:
        if "_perseus_owner" in vars(cls):
            names += set(vars(cls)) - {name for name in vars(cls) if name.startswith("__")}
            names.remove("_perseus_owner")
    return sorted(names)


def read_log(file):
    """The first header, and the steps of all sessions of the process."""
    header, *others = map(json.loads, file.read_text().splitlines())
    return header, [record for record in others if "step" in record]


def load_example(framework):
    """The module of examples/FRAMEWORK/train.py."""
    spec = importlib.util.spec_from_file_location("train", EXAMPLES / framework / "train.py")
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    return train


class ScratchTest(unittest.TestCase):
    """A test with its own temporary directory: the job directory, or that of the workers' results."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)

    def recorded(self):
        """(kind, microbatch) of the instructions of each step, after the session was closed."""
        _, steps = read_log(self.scratch / "ranks" / "dp0-pp0-tp0.jsonl")
        return [[(KINDS[kind], i) for kind, i, *_ in step["instructions"]] for step in steps]

    def check_unchanged_example(self, framework, batch):
        """Without a change of the program, the import hook attaches."""
        done = subprocess.run(
            [sys.executable, HERE / "on_cpu.py", EXAMPLES / framework / "train.py", "--steps=2",
             "--microbatches=2", f"--batch={batch}"],
            env={**os.environ, **ALONE, "PERSEUS_ATTACH": "auto", "PERSEUS_AGENT": "off",
                 "PERSEUS_DEVICES": "off", "PERSEUS_JOB_DIR": str(self.scratch),
                 "PYTHONPATH": f"{HOOK}:{os.environ['PYTHONPATH']}"},
            capture_output=True,
            text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step 1: loss", done.stdout)
        step = [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)]
        self.assertEqual(self.recorded(), [step] * 2)

    def observe(self, ranks, worker):
        """Yields each rank, and what its observer saw."""
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             f"--nproc-per-node={ranks}", HERE / worker, self.scratch],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(ranks):
            yield rank, json.loads((self.scratch / f"{rank}.json").read_text())

    def check_record(self, found, log, stages):
        """What Perseus recorded is what the observer saw, in each step. Returns the header."""
        header, steps = read_log(self.scratch / log)
        self.assertTrue(found["is_attached"])
        self.assertEqual(header["stages"], stages)
        self.assertEqual(len(steps), found["steps"])
        for step in steps:
            recorded = [
                [KINDS[kind], microbatch, stages[chunk]]
                for kind, microbatch, chunk, *_ in step["instructions"]
            ]
            self.assertEqual(recorded, found["order"])
        return header


class ObservedTest(ScratchTest):
    """A pipeline of 2 and of 4 ranks, by a worker that calls observe() (comparison.py)."""

    def check(self, found, name, rank, ranks, stages):
        header = self.check_record(found, f"{name}/ranks/dp0-pp{rank}-tp0.jsonl", stages)
        self.assertEqual(header["pp_ranks"], ranks)
        self.assertGreater(found["steps"], 0)
        # Attaching changes no computed value, and every original function is restored.
        self.assertEqual(found["never"], found["attached"])
        self.assertEqual(found["never"], found["detached"])
        self.assertEqual(found["patched"], [])
        # A plan of this order is followed in every step. A plan with two exchanged microbatches is
        # followed in no step.
        self.assertEqual(found["off_plan"], 0)
        self.assertEqual(found["off_swapped_plan"], found["steps"])

    def check_ramp(self, found, rank, counts):
        """The number of microbatches changes: `counts` are the instructions of each step."""
        _, steps = read_log(self.scratch / f"ramp/ranks/dp0-pp{rank}-tp0.jsonl")
        self.assertTrue(found["is_attached"])
        self.assertEqual([len(step["instructions"]) for step in steps], counts)


class TwoPipelinesTest(ScratchTest):
    """Two pipelines of two ranks with FSDP, by a worker that calls compare() (comparison.py)."""

    def check_two_pipelines(self, worker, schedules, steps):
        for rank, observed in self.observe(4, worker):
            pp_rank, dp_rank = divmod(rank, 2)
            for name in schedules:
                with self.subTest(schedule=name, rank=rank):
                    found = observed[name]
                    self.assertTrue(found["is_same"])
                    self.assertEqual(found["steps"], steps)
                    log = f"{name}/ranks/dp{dp_rank}-pp{pp_rank}-tp0.jsonl"
                    self.check_record(found, log, found["stages"])
