"""Measures the time of the hooks in real steps: --measure puts a stopwatch around each of them.

The stopwatch reads the clock twice for each call, and this time counts as the hooks' time. The printed
times are therefore upper limits.
"""

import time

import perseus


class Stopwatch:
    def __init__(self):
        self.hook_s, self.calls, self.step_s, self.steps = 0.0, 0, 0.0, 0
        perseus.instruction = self._timed(perseus.instruction)
        perseus.step = self._timed(perseus.step)

    def add_step(self, seconds):
        self.step_s += seconds
        self.steps += 1

    def _timed(self, make):
        watch = self

        class Timed:
            def __init__(self, *arguments, **named):
                began = time.perf_counter()
                self.hook = make(*arguments, **named)
                watch.hook_s += time.perf_counter() - began

            def __enter__(self):
                began = time.perf_counter()
                self.hook.__enter__()
                watch.hook_s += time.perf_counter() - began
                watch.calls += 1

            def __exit__(self, *error):
                began = time.perf_counter()
                self.hook.__exit__(*error)
                watch.hook_s += time.perf_counter() - began
                watch.calls += 1

        return Timed


def report(rank, watch, session):
    print(
        f"rank {rank}: {watch.steps} steps of {watch.step_s / watch.steps * 1e3:.1f} ms; hooks took "
        f"{watch.hook_s / watch.steps * 1e6:.1f} us per step in {watch.calls // watch.steps} calls, "
        f"{watch.hook_s / watch.step_s:.5%} of it"
        + (f"; {session.counters.warnings} warnings" if session else ""),
        flush=True,
    )
