"""Runs a training script on a virtual GPU.

    on_virtual_gpu.py PROFILE SCRIPT [ARGUMENT...]

The first embedding of a model takes the time of a virtual GPU (perseus.virtual), in its forward and
in its backward. The script knows nothing of it, and the numbers that it computes stay the same.
"""

import os
import runpy
import sys

import torch


def occupy_with_embeddings(profile):
    from perseus import virtual

    layer = virtual.layer(profile, int(os.environ.get("LOCAL_RANK", "0")))
    original = torch.nn.Embedding.forward
    first = []

    def forward(module, codes):
        found = original(module, codes)
        if not first:
            first.append(module)
        if first[0] is module and module.training and torch.is_grad_enabled():
            return layer(found)
        return found

    torch.nn.Embedding.forward = forward


def main():
    profile, script = sys.argv[1:3]
    occupy_with_embeddings(os.path.abspath(profile))
    sys.argv[:3] = [script]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
