"""Wrong settings, and unusual programs: the training goes on and computes the same, and what is wrong
is one warning."""

import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import unittest
import unittest.mock

import torch
from torch.utils.data import DataLoader

import perseus
import tiny_gpt
from torch_one_process import MICROBATCHES, TorchTest

SILENT = {"PERSEUS_AGENT": "off", "PERSEUS_DEVICES": "off"}


class SettingsTest(TorchTest):
    def warnings_with(self, **variables):
        """Trains three steps with these variables, and returns the warnings of Perseus."""
        expected = self.train(self.make())
        with unittest.mock.patch.dict(os.environ, {**SILENT, **variables}):
            schedule = self.make()
            handle = perseus.attach(schedule)
            self.handles.append(handle)
            with self.assertLogs("perseus", "WARNING") as logs:
                found = self.train(schedule)
                self.assertEqual(handle.session.counters.steps, 3)
                handle.detach()  # Logs the warnings of the background thread.
        self.assertEqual(found, expected)
        return logs.output

    @staticmethod
    def train(schedule):
        return [tiny_gpt.run_step(schedule, step, MICROBATCHES) for step in range(3)]

    def test_wrong_settings(self):
        """The tests of the library have more of each (settings_test.cc, file_test.cc)."""
        os.mkfifo(self.scratch / "assignment.json")
        example = pathlib.Path(os.environ["PERSEUS_SOURCES"]) / "examples" / "virtual-node.toml"
        node = shutil.copy(example, self.scratch)  # A virtual node writes its state beside its description.
        for variable, value, expected in (
            ("PERSEUS_PLAN", "/dev/zero", "is not a regular file"),
            ("PERSEUS_PLAN", "two\nlines", "two\\x0Alines: cannot read"),
            ("PERSEUS_PLAN", "x" * 5000, "File name too long"),
            ("PERSEUS_DEVICES", "garbage", "is no kind of GPU"),
            ("PERSEUS_DEVICES", f"virtual:{self.scratch}", "is a directory"),
            ("PERSEUS_JOB_DIR", "/dev/zero", "Not a directory"),
            ("PERSEUS_JOB_DIR", str(self.scratch), "assignment.json: is not a regular file"),
            ("PERSEUS_LOG_BYTES", "9" * 40, f'PERSEUS_LOG_BYTES is "{"9" * 40}"'),
            ("PERSEUS_JOB", "x" * 300, "1 to 200 bytes"),
            ("PERSEUS_GPU", "-1", "no GPU"),
        ):
            others = {"PERSEUS_DEVICES": f"virtual:{node}"} if variable == "PERSEUS_GPU" else {}
            with self.subTest(variable=variable, value=value[:60]):
                warnings = self.warnings_with(**{variable: value}, **others)
                self.assertEqual(len(warnings), 1, warnings)
                self.assertIn(expected, warnings[0])
                self.assertNotIn("\n", warnings[0])
                self.assertLess(len(warnings[0]), 1200)

    def test_no_memory_for_a_session(self):
        """The C library returns no session. That is a warning too."""
        script = (
            "import perseus, resource\n"
            "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
            "resource.setrlimit(resource.RLIMIT_AS, (used, used))\n"
            "session = perseus.open()\n"
            "session.step_begin(); session.instruction_begin('forward'); session.step_end()\n"
            "print(session.counters.steps)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "0\n"), done.stderr)
        self.assertIn("no session can be opened", done.stderr)


class ProgramsTest(TorchTest):
    def check_recorded(self, schedule, steps):
        """That each of these steps was recorded whole."""
        self.assertEqual(self.handles[-1].session.counters.steps, steps)
        self.handles[-1].detach()
        self.assertEqual([len(step) for step in self.recorded()], [2 * MICROBATCHES] * steps)

    def test_another_thread_drives_the_schedule(self):
        """Also if the thread changes from step to step."""
        expected = [self.step(self.make())] * 4
        schedule = self.make()
        self.attach(schedule)
        found = []
        for number in range(4):
            if number == 2:
                found.append(self.step(schedule))
                continue
            thread = threading.Thread(target=lambda: found.append(self.step(schedule)))
            thread.start()
            thread.join()
        self.assertEqual(found, expected)
        self.check_recorded(schedule, 4)

    def test_workers_that_begin_inside_of_a_step(self):
        """A forked child has no session. What it does with Perseus changes nothing in the parent."""

        def child(handle):
            with perseus.step(), perseus.instruction("forward"):
                pass
            handle.detach()

        class Forks(torch.nn.Module):
            def forward(self, x):
                list(DataLoader(list(range(4)), num_workers=2))
                process = multiprocessing.get_context("fork").Process(target=child, args=[handle])
                process.start()
                process.join()
                statuses.append(process.exitcode)
                return x

        statuses = []
        expected = self.step(self.make())
        schedule = self.make(extra=lambda _: Forks())
        handle = self.attach(schedule)
        for _ in range(2):
            self.assertEqual(self.step(schedule), expected)
        self.assertEqual(set(statuses), {0})
        self.check_recorded(schedule, 2)


class MeshTest(TorchTest):
    def test_what_is_no_mesh_is_one_warning(self):
        for mesh in ("mesh", (2, 2), torch.zeros(2), object()):
            with self.subTest(mesh=mesh):
                schedule = self.make()
                handle = self.attach(schedule, mesh=mesh)
                warnings = self.warnings_of(lambda: [self.step(schedule) for _ in range(2)])
                self.assertEqual(len(warnings), 1)
                self.assertIn("the argument mesh is not used", warnings[0])
                self.assertEqual(handle.session.counters.steps, 2)
                handle.detach()


if __name__ == "__main__":
    unittest.main()
