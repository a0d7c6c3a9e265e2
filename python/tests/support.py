"""Functions that tests share. ctest sets the variables with the paths of program and sources."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.environ["PERSEUS_PROGRAM"]
SOURCES = pathlib.Path(os.environ["PERSEUS_SOURCES"])
PROFILE = SOURCES / "examples" / "gpt3-like_a100_pp8.csv"


class ScratchTest(unittest.TestCase):
    """A test with its own temporary directory."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)

    def run_program(self, *arguments, status=0):
        """Runs `perseus` in the scratch directory. Returns its output, or its errors if `status` is not 0."""
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)], cwd=self.scratch, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def run_python(self, code, **environment):
        """Runs code in another interpreter, so that its exit is part of the test."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.scratch,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done


class Agent:
    """A real agent on virtual GPUs. It runs until the test ends."""

    def __init__(self, test, gpus=1):
        (test.scratch / "node.toml").write_text(
            f'name = "box"\ngpus = {gpus}\n[gpu]\nmodel = "a100-sxm"\n'
        )
        self.devices = f"virtual:{test.scratch / 'node.toml'}"
        self.socket = str(test.scratch / "agent.sock")
        self._test = test
        flags = ["--devices", self.devices, "--socket", self.socket, "--metrics", "off"]
        log = open(test.scratch / "agent.log", "w")
        test.addCleanup(log.close)
        self.process = subprocess.Popen(
            [PROGRAM, "agent", *flags, "--state", str(test.scratch / "agent.json")], stderr=log
        )
        test.addCleanup(self.stop)
        self.wait_until(lambda: os.path.exists(self.socket) and self.gpus() is not None)

    def gpus(self):
        done = subprocess.run(
            [PROGRAM, "gpu", "list", "--json", "--socket", self.socket], capture_output=True, text=True
        )
        return json.loads(done.stdout)["gpus"] if done.returncode == 0 else None

    def wait_until(self, condition):
        end = time.monotonic() + 30
        while not condition():
            if time.monotonic() > end:
                self._test.fail((self._test.scratch / "agent.log").read_text())
            time.sleep(0.02)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
