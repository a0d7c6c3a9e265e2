"""Tests the package from an installed prefix, and as a wheel in a virtual environment."""

import glob
import os
import pathlib
import subprocess
import sys
import unittest

from support import SOURCES, ScratchTest

BUILD = os.environ["PERSEUS_BUILD"]
USE = """
import perseus, sys
with perseus.open(agent="off", devices="off") as session, perseus.step():
    with perseus.instruction("forward", microbatch=0): pass
assert session.counters.instructions == 1
kinds, clocks = ("forward", "backward"), (1410, 1200)
rows = [(0, kind, mhz, 0.01 * 1410 / mhz, 4 * mhz / 1410) for kind in kinds for mhz in clocks]
assert perseus.plan(rows, schedule="1f1b", microbatches=2, blocking_power_w=0).plan.time_s == 0.04
print(perseus.__version__, perseus.__file__)
"""
# The same without NumPy, which the planner needs only for its results.
USE_WITHOUT_NUMPY = """
import perseus
from perseus import _planner, virtual
with perseus.open(agent="off", devices="off") as session, perseus.step():
    with perseus.instruction("forward", microbatch=0, chunk=1): pass
assert session.counters.instructions == 1
rows = "".join(f"0,{kind},{mhz},{0.01 * 1410 / mhz},{4 * mhz / 1410}\\n"
               for kind in ("forward", "backward") for mhz in (1410, 1200))
settings = {"profile": "rows", "profile_text": "stage,instruction,frequency,time,energy\\n" + rows,
            "schedule": "1f1b", "microbatches": 2, "blocking_power_w": 0.0}
(plan, file), = _planner.plan(_planner.load(settings), [], {"effort": 1})["plans"]
assert plan["time_s"] == 0.04, plan
kind, clocks = _planner.instructions(file)["frequency_mhz"]
assert kind == "i4" and len(clocks) == 4 * 4
try:
    _planner.load({**settings, "microbatches": 0})
except _planner.Error as error:
    assert error.setting == "microbatches", error
else:
    raise AssertionError("no microbatches are an error")
print(perseus.__file__)
"""


def other_pythons():
    """Returns the interpreters of other versions from 3.10 on that this machine has."""
    found = {}
    places = [*os.environ["PATH"].split(os.pathsep), *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))]
    for minor in range(10, 30):
        for place in places:
            python = os.path.join(place, f"python3.{minor}")
            if minor == sys.version_info.minor or minor in found or not os.path.exists(python):
                continue
            if subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
                found[minor] = python
    return list(found.values())


class InstallTest(ScratchTest):
    def run_command(self, *command, **environment):
        # Nothing may come from the build directory.
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
        done = subprocess.run(
            list(map(str, command)),
            cwd=self.scratch,
            env={**clean, **environment},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_prefix(self):
        prefix = self.scratch / "prefix"
        self.run_command("cmake", "--install", BUILD, "--prefix", prefix)
        where = prefix / "lib" / "python3" / "dist-packages"
        output = self.run_command(sys.executable, "-c", USE, PYTHONPATH=str(where))
        self.assertIn(str(where), output)
        self.assertEqual(list(where.rglob("libperseus*")), [])
        self.assertTrue((where / "perseus" / "py.typed").exists())
        self.assertTrue((prefix / "share/perseus/examples/closed-loop/job.toml").exists())

    def test_wheel(self):
        # Use the existing build: a new build of the wheel would differ only in its directory, and
        # take minutes.
        venv = self.scratch / "venv"
        self.run_command(sys.executable, "-m", "venv", "--system-site-packages", venv)
        pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        offline = ["--no-build-isolation", "--no-index", "--no-deps"]
        self.run_command(
            *pip, "wheel", *offline, "-w", self.scratch, SOURCES, PERSEUS_CMAKE_BUILD=BUILD
        )
        (wheel,) = self.scratch.glob("perseus_energy-*.whl")
        self.assertIn("-cp310-abi3-linux", wheel.name)
        self.run_command(*pip, "install", "--no-index", "--no-deps", wheel)
        output = self.run_command(venv / "bin" / "python", "-c", USE)
        self.assertIn(str(venv), output)
        self.assertEqual(len(list(venv.rglob("libperseus.so.1"))), 1)
        self.assertEqual(len(list(venv.rglob("examples/closed-loop/job.toml"))), 1)
        # The program is inside, with its own libperseus.
        version = self.run_command(venv / "bin" / "python", "-c", "import perseus; print(perseus.__version__)")
        output = self.run_command(venv / "bin" / "perseus", "version")
        self.assertTrue(output.startswith(f"perseus {version.strip()} ("), output)
        # It finds its package for a Python that lacks it. The rest of the virtual environment stays
        # out of that Python.
        (package,) = venv.rglob("site-packages/perseus")
        (package.parent / "secret.py").write_text("")
        show = "import importlib.util as u, perseus; print(perseus.__file__, u.find_spec('secret'))"
        for attach in ("auto", "off"):
            output = self.run_command(
                venv / "bin" / "perseus", "run", "--", sys.executable, "-c", show, PERSEUS_ATTACH=attach
            )
            self.assertIn(f"{package / '__init__.py'} None\n", output)
        self.check_other_pythons(wheel)

    def check_other_pythons(self, wheel):
        """The same files work with each Python from 3.10 on."""
        unpacked = self.scratch / "unpacked"
        self.run_command(sys.executable, "-m", "zipfile", "-e", wheel, unpacked)
        for python in other_pythons():
            with self.subTest(python):
                output = self.run_command(python, "-W", "error", "-c", USE_WITHOUT_NUMPY, PYTHONPATH=str(unpacked))
                self.assertIn(str(unpacked), output)


if __name__ == "__main__":
    unittest.main()
