"""The import hook of `perseus run`: a program that does not mention Perseus is attached."""

import os
import shutil
import subprocess
import sys
import unittest

from observed import HERE, HOOK, ScratchTest, read_log
from works import works

TRAIN = """
import torch, torch.distributed as dist, tiny_gpt
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
schedule = tiny_gpt.make_schedule("{name}", 0, 1, 4)
for step in range(4):
    print([loss.hex() for loss in tiny_gpt.run_step(schedule, step, 4)])
"""

BEGIN, LOOP = TRAIN[: TRAIN.index("schedule")], TRAIN[TRAIN.index("for") :]
STEPS = (
    BEGIN
    + """
import gc, os, torch_steps_test
for name in ("Own", "Loop", "Accumulating", "WrappingUnseen"):
    os.environ["PERSEUS_JOB_DIR"] = name
    schedule = torch_steps_test.make(name)
    for step in range(4):
        print([loss.hex() for loss in tiny_gpt.run_step(schedule, step, 4)])
    del schedule
    gc.collect()
"""
)
OUTSIDE = (
    BEGIN
    + """
import torch_steps_test
schedule = torch_steps_test.make("Loop")
"""
    + LOOP.replace("step, 4", "step, 4, schedule.compute")
)
PACKAGE = HOOK.parents[1]  # torch_steps_test imports Perseus.


class HookTest(ScratchTest):
    def run_python(self, code, *path, **environment):
        """Runs code with these directories as PYTHONPATH. Returns its output and its errors."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PERSEUS", "PYTHONPATH"))}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**clean, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment},
            cwd=self.scratch,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def attached(self, code, *path, hook=HOOK):
        return self.run_python(
            code,
            hook,
            HERE,
            *path,
            PERSEUS_ATTACH="auto",
            PERSEUS_JOB_DIR=str(self.scratch / "job"),
            PERSEUS_AGENT="off",
            PERSEUS_DEVICES="off",
        )

    @works("torch", "attached by the import hook")
    def test_a_training_program_is_recorded_and_computes_the_same(self):
        for name, count in (("GPipe", 8), ("Interleaved1F1B", 16)):
            with self.subTest(schedule=name):
                self.check_recorded(TRAIN.format(name=name), [count] * 4)

    def check_recorded(self, code, counts):
        """The output is the same with Perseus, which records steps with so many instructions."""
        without, _ = self.run_python(code, PACKAGE, HERE)
        output, errors = self.attached(code, PACKAGE)
        self.assertEqual(output, without)
        self.assertNotIn("perseus:", errors)
        header, steps = read_log(self.scratch / "job" / "ranks" / "dp0-pp0-tp0.jsonl")
        self.assertEqual(header["pp_ranks"], 1)
        self.assertEqual([len(step["instructions"]) for step in steps], counts)
        shutil.rmtree(self.scratch / "job")

    @works("torch", "any step() of a program, by the import hook")
    def test_steps_of_any_kind_are_recorded(self):
        """Some classes of the program are defined before torch's classes get hooks, some after."""
        without, _ = self.run_python(STEPS, PACKAGE, HERE)
        output, errors = self.attached(STEPS, PACKAGE)
        self.assertEqual(output, without)
        self.assertNotIn("perseus:", errors)
        for name, count in {"Own": 4, "Loop": 4, "Accumulating": 8, "WrappingUnseen": 4}.items():
            _, steps = read_log(self.scratch / name / "ranks" / "dp0-pp0-tp0.jsonl")
            self.assertEqual([len(step["instructions"]) for step in steps], [8] * count)

    def test_a_stage_that_computes_outside_of_a_step_is_one_warning(self):
        _, errors = self.attached(OUTSIDE, PACKAGE)
        self.assertEqual(errors.count("perseus:"), 1, errors)
        self.assertIn("a stage runs a backward outside of a step", errors)
        self.assertTrue((self.scratch / "job" / "ranks" / "dp0-pp0-tp0.outside").exists())

    def test_nothing_is_imported_before_a_framework_is(self):
        code = "import sys; print([m for m in sys.modules if 'perseus' in m.lower() or m == 'torch'])"
        self.assertEqual(self.run_python(code, HOOK)[0], "[]\n")
        self.assertEqual(self.attached(code)[0], "[]\n")

    def test_the_hidden_sitecustomize_runs(self):
        (self.scratch / "sitecustomize.py").write_text("import sys; sys.hidden = __name__")
        code = "import sys, sitecustomize; print(sys.hidden, sitecustomize.__file__)"
        expected = f"sitecustomize {self.scratch / 'sitecustomize.py'}\n"
        self.assertEqual(self.run_python(code, HOOK, self.scratch)[0], expected)
        self.assertEqual(self.attached(code, self.scratch)[0], expected)

    def test_the_module_of_the_framework_stays_what_it_is(self):
        code = """
import inspect, torch.distributed.pipelining.schedules as schedules
print(type(schedules.__loader__).__name__, schedules.__spec__.loader is schedules.__loader__)
print(inspect.signature(schedules.PipelineScheduleSingle.step))
print("def step" in inspect.getsource(schedules), "exec_module" in vars(schedules.__loader__))
"""
        without, _ = self.run_python(code, HERE)
        output, _ = self.attached(code)
        self.assertEqual(output, without)

    def test_a_broken_installation_is_one_line(self):
        """The extension modules are missing, as for an interpreter of another version."""
        broken = self.scratch / "perseus"
        shutil.copytree(HOOK.parent, broken, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        output, errors = self.attached(TRAIN.format(name="GPipe"), hook=broken / "hook")
        self.assertEqual(len(output.splitlines()), 4)
        self.assertEqual(errors.count("perseus: cannot attach"), 1)
        self.assertIn("training runs without Perseus", errors)


if __name__ == "__main__":
    unittest.main()
