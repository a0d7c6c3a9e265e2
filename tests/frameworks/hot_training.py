"""Runs a training on virtual GPUs. While the file HEAT exists, the GPU of one rank is hot.

    hot_training.py HEAT TRAINING [ARGUMENT...]

HEAT has the rank, and the clock in MHz up to which the heat permits. The rank reads it in each
step of the optimizer.
"""

import os
import pathlib
import runpy
import sys

from torch.optim.optimizer import register_optimizer_step_post_hook


def main():
    heat, training = pathlib.Path(sys.argv[1]), sys.argv[2]
    del sys.argv[:2]
    state = {"mhz": None}

    def look(*_):
        from perseus import virtual

        mhz = None
        if heat.exists():
            rank, clock = heat.read_text().split()
            mhz = int(clock) if rank == os.environ["RANK"] else None
        if mhz != state["mhz"]:
            virtual.gpu().throttle(mhz)
            state["mhz"] = mhz

    register_optimizer_step_post_hook(look)
    runpy.run_path(training, run_name="__main__")


if __name__ == "__main__":
    main()
