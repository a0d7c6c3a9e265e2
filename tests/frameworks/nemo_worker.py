"""One rank of nemo_test.py: NeMo AutoModel's AutoPipeline, meshes and recipe, on CPUs.

AutoPipeline splits a model of transformers into stages and builds the schedule. The calls are those of
its recipe (recipes/llm/train_ft.py, version 0.7): update_seq_len() before each step, schedule.step()
several times for a step of the optimizer, schedule.eval() in a validation. The length of sequences
changes, so AutoModel makes the buffers of its stages again.

Writes RESULTS/RANK.json: for each schedule, what was computed with and without Perseus.
"""

import functools

import torch
from nemo_automodel.components.distributed.config import FSDP2Config
from nemo_automodel.components.distributed.mesh import ParallelismSizes
from nemo_automodel.components.distributed.mesh_utils import _create_device_meshes
from nemo_automodel.components.distributed.pipelining import functional as nemo_pipelining
from nemo_automodel.components.distributed.pipelining.autopipeline import AutoPipeline
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

import tiny_gpt
from comparison import compare, run_worker

MICROBATCHES, PP, FSDP = 4, 2, 2
# Name, and layers of a stage.
SCHEDULES = {"1F1B": 2, "Interleaved1F1B": 1, "InterleavedZeroBubble": 1, "ZBVZeroBubble": 1}
LENGTHS = (16, 24)

nemo_pipelining.PipelineStage = tiny_gpt.ObservedStage  # The observer is a subclass.


def parallelize(model, world_mesh, moe_mesh, **named):
    fully_shard(model, mesh=world_mesh["dp_shard"])


def build(name, mesh):
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=tiny_gpt.VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    pipeline = AutoPipeline(
        world_mesh=mesh,
        dp_axis_names=("dp_shard",),
        pp_schedule=name,
        pp_microbatch_size=1,
        pp_batch_size=MICROBATCHES,
        layers_per_stage=SCHEDULES[name],
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    return pipeline.build(
        LlamaForCausalLM(config), loss_fn=tiny_gpt.loss_of, parallelize_fn=parallelize
    )


def call(pipeline, function, batch, step):
    generator = torch.Generator().manual_seed(batch)
    length = LENGTHS[step % len(LENGTHS)]
    text = torch.randint(tiny_gpt.VOCABULARY, (MICROBATCHES, length + 1), generator=generator)
    pipeline.update_seq_len(length)
    losses = [] if pipeline.info.has_last_stage else None
    arguments = (text[:, :-1],) if pipeline.info.has_first_stage else ()
    function(*arguments, target=text[:, 1:] if losses is not None else None, losses=losses)
    return [loss.item() for loss in losses or ()]


def observe_all(results):
    sizes = ParallelismSizes(dp_size=FSDP, pp_size=PP)
    mesh, _ = _create_device_meshes(FSDP2Config(), sizes, world_size=PP * FSDP)

    def make(name):
        pipeline = build(name, mesh)
        return pipeline.info.schedule, functools.partial(call, pipeline)

    return {name: compare(functools.partial(make, name), results / name) for name in SCHEDULES}


if __name__ == "__main__":
    run_worker(observe_all)
