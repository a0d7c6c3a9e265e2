"""One rank of nemo_test.py: NeMo AutoModel's AutoPipeline, meshes and recipe, on CPUs.

AutoPipeline splits a model of transformers into stages and builds the schedule. The calls are those of
its recipe (recipes/llm/train_ft.py, version 0.7): update_seq_len() before each step, schedule.step()
several times for a step of the optimizer, schedule.eval() in a validation. The length of sequences
changes, so AutoModel makes the buffers of its stages again.

Writes RESULTS/RANK.json: for each schedule, what was computed with and without Perseus.
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist
from nemo_automodel.components.distributed.config import FSDP2Config
from nemo_automodel.components.distributed.mesh import ParallelismSizes
from nemo_automodel.components.distributed.mesh_utils import _create_device_meshes
from nemo_automodel.components.distributed.pipelining import functional as nemo_pipelining
from nemo_automodel.components.distributed.pipelining.autopipeline import AutoPipeline
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

import tiny_gpt
from comparison import compare

MICROBATCHES, OPTIMIZER_STEPS, ACCUMULATION = 4, 3, 2
PP, FSDP = 2, 2
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


def call(pipeline, function, batch, length):
    generator = torch.Generator().manual_seed(batch)
    shape = (MICROBATCHES, length + 1)
    text = torch.randint(tiny_gpt.VOCABULARY, shape, generator=generator)
    pipeline.update_seq_len(length)
    losses = [] if pipeline.info.has_last_stage else None
    arguments = (text[:, :-1],) if pipeline.info.has_first_stage else ()
    function(*arguments, target=text[:, 1:] if losses is not None else None, losses=losses)
    return [loss.item().hex() for loss in losses or ()]


def train(pipeline):
    """Returns all losses and parameters, and what the observer saw in the last step."""
    schedule = pipeline.info.schedule
    parameters = [p for part in pipeline.parts for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    found = []
    for step in range(OPTIMIZER_STEPS):
        optimizer.zero_grad()
        for accumulated in range(ACCUMULATION):
            tiny_gpt.ObservedStage.seen.clear()
            batch = step * ACCUMULATION + accumulated
            found += call(pipeline, schedule.step, batch, LENGTHS[step % len(LENGTHS)])
        seen = list(tiny_gpt.ObservedStage.seen)
        optimizer.step()
        if "ZBV" not in type(schedule).__name__:  # torch 2.13 cannot.
            with torch.no_grad():
                found += call(pipeline, schedule.eval, step, LENGTHS[0])
    found += [p.to_local().tolist() for p in parameters]
    return found, seen


def observe(results, name, mesh):
    without, with_perseus = (build(name, mesh) for _ in range(2))
    return compare(train, without, with_perseus, lambda p: p.info.schedule, results / name)


def main():
    results = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sizes = ParallelismSizes(dp_size=FSDP, pp_size=PP)
    mesh, _ = _create_device_meshes(FSDP2Config(), sizes, world_size=PP * FSDP)
    found = {name: observe(results, name, mesh) for name in SCHEDULES}
    (results / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
