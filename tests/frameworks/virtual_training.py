"""Runs the example of DeepSpeed or Megatron-core on virtual GPUs.

    virtual_training.py EXAMPLE PROFILE [ARGUMENT...]

It adds a layer to each stage that occupies a virtual GPU (perseus.virtual). The layer knows nothing of
the adapters, which have to find the instructions by themselves.
"""

import importlib.util
import os
import sys

import on_cpu


def for_deepspeed(train, profile):
    from perseus import virtual

    class VirtualPipelineModule(train.PipelineModule):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.virtual = virtual.layer(profile, stage=self.stage_id)

        def forward(self, x):
            return self.virtual(super().forward(x))

    train.PipelineModule = VirtualPipelineModule


def for_megatron(train, profile):
    from perseus import virtual

    class VirtualStage(train.Stage):
        def __init__(self, config, stage, stages):
            super().__init__(config, stage, stages)
            ranks = config.pipeline_model_parallel_size
            self.virtual = virtual.layer(profile, stage=stage % ranks, chunk=stage // ranks)

        def forward(self, codes):
            return self.virtual(super().forward(codes))

    train.Stage = VirtualStage


def main():
    example, profile = sys.argv[1:3]
    sys.argv[:3] = [example]
    on_cpu.without_cuda()
    if "deepspeed" in example:
        on_cpu.without_compiler()
    spec = importlib.util.spec_from_file_location("train", example)
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    adapt = for_deepspeed if hasattr(train, "PipelineModule") else for_megatron
    adapt(train, os.path.abspath(profile))
    train.main()


if __name__ == "__main__":
    main()
