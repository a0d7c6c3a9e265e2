"""Runs tests at the same time: at_once.py SCRIPT[:CASE]... Jobs in real time sleep most of the time."""

import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).parent
running = []
for test in sys.argv[1:]:
    script, _, case = test.partition(":")
    command = [sys.executable, here / script, *case.split()]
    running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
outputs = [test.communicate()[0] for test in running]
print("\n".join(outputs))
sys.exit(any(test.returncode for test in running))
