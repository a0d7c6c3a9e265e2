"""Tests the package from an installed prefix, and as a wheel in a virtual environment."""

import os
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
        (wheel,) = self.scratch.glob("perseus-*.whl")
        self.assertIn("linux", wheel.name)
        self.run_command(*pip, "install", "--no-index", "--no-deps", wheel)
        output = self.run_command(venv / "bin" / "python", "-c", USE)
        self.assertIn(str(venv), output)
        self.assertEqual(len(list(venv.rglob("libperseus.so.1"))), 1)
        # The program is inside, with its own libperseus.
        version = self.run_command(venv / "bin" / "python", "-c", "import perseus; print(perseus.__version__)")
        output = self.run_command(venv / "bin" / "perseus", "version")
        self.assertTrue(output.startswith(f"perseus {version.strip()} ("), output)


if __name__ == "__main__":
    unittest.main()
