"""Runs a training script of DeepSpeed or Megatron-core on a machine without a GPU.

    on_cpu.py SCRIPT [ARGUMENT...]
    on_cpu.py -m MODULE [ARGUMENT...]

It changes only what stops these frameworks on such a machine. It does not touch what Perseus attaches
to.
"""

import os
import runpy
import sys

import torch


class _OnCpu(torch.overrides.TorchFunctionMode):
    """Makes tensors on the CPU where a framework asks for a CUDA device by name."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if "cuda" in str(kwargs.get("device")):
            kwargs = {**kwargs, "device": "cpu"}
        return function(*args, **kwargs)


def without_cuda():
    """Megatron-core asks for the current CUDA device, and synchronizes with it."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *args, **kwargs: None
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    _OnCpu().__enter__()


def without_compiler():
    """DeepSpeed compiles an all-reduce in shared memory at its first use, which takes minutes."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.ops import __compatible_ops__ as operators

    operators["deepspeed_shm_comm"] = False


def main():
    if not torch.cuda.is_available():
        without_cuda()
        if any("deepspeed" in argument for argument in sys.argv):
            without_compiler()
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
