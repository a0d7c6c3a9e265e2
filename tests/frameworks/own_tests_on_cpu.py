"""A plugin of pytest for own_tests.py: each rank runs Megatron-core's tests on the CPU, with gloo.

Each rank writes a report of its own: REPORT.RANK.
"""

import os

import pytest
import torch

import on_cpu

RANKS = int(os.environ["WORLD_SIZE"])

on_cpu.without_cuda()
torch.cuda.set_device = lambda *args, **kwargs: None
torch.cuda.device_count = lambda: RANKS
torch.cuda.manual_seed = lambda *args, **kwargs: None
torch.nn.Module.cuda = lambda self, *args, **kwargs: self

_init_process_group = torch.distributed.init_process_group


def _with_gloo(backend=None, *args, **kwargs):
    return _init_process_group("gloo", *args, **kwargs)


torch.distributed.init_process_group = _with_gloo


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.option.xmlpath += f".{os.environ['RANK']}"
