"""A tiny GPT, cut into stages, on every schedule class of torch.distributed.pipelining.

An observer writes what really runs: a subclass of PipelineStage, which Perseus knows nothing of.
"""

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as torch_schedules
from torch.nn import functional

VOCABULARY, CONTEXT, WIDTH = 32, 8, 16

# Name of the schedule, and the number of stages of a rank.
SINGLE = {"GPipe": 1, "1F1B": 1}
MULTI = {"Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2}
V_SHAPED = {"ZBVZeroBubble": 2, "DualPipeV": 2}
SCHEDULES = {**SINGLE, **MULTI, **V_SHAPED}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(functional.scaled_dot_product_attention(query, key, value, is_causal=True))
        return x + self.mlp(x)


class StageModule(nn.Module):
    """One stage. `extra` is a layer of a test, after the block."""

    def __init__(self, index, stages, extra=None):
        super().__init__()
        torch.manual_seed(index)
        self.embed = nn.Embedding(VOCABULARY, WIDTH) if index == 0 else None
        self.block = Block()
        self.extra = extra
        self.head = nn.Linear(WIDTH, VOCABULARY) if index == stages - 1 else None

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x)
        x = self.block(x)
        if self.extra is not None:
            x = self.extra(x)
        return x if self.head is None else self.head(x)


class ObservedStage(PipelineStage):
    """Writes down what it computes, in the names of Perseus: (kind, microbatch, stage)."""

    seen = []  # What the stages of this process have computed.

    def forward_one_chunk(self, fwd_chunk_id, *arguments, **named):
        if self.has_backward:
            self.seen.append(("forward", fwd_chunk_id, self.stage_index))
        return super().forward_one_chunk(fwd_chunk_id, *arguments, **named)

    def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
        kind = "backward" if full_backward else "backward_input"
        self.seen.append((kind, bwd_chunk_id, self.stage_index))
        return super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id, *arguments, **named):
        self.seen.append(("backward_weight", bwd_chunk_id, self.stage_index))
        return super().backward_weight_one_chunk(bwd_chunk_id, *arguments, **named)


def loss_of(output, target):
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def stage_indices(name, rank, ranks):
    if name in V_SHAPED:
        return [rank, 2 * ranks - 1 - rank]
    return [rank + chunk * ranks for chunk in range(SCHEDULES.get(name, 2))]


def make_schedule(name, rank, ranks, microbatches, extra=None, csv=None, module=StageModule,
                  stage_class=ObservedStage, indices=None):
    """The schedule of this rank. `name` "csv" loads the compute order from a file. `indices`: the
    stages of this rank, if they are not those of the name."""
    indices = indices or stage_indices(name, rank, ranks)
    count = len(indices) * ranks
    stages = [
        stage_class(
            module(index, count, None if extra is None else extra(index)),
            index,
            count,
            torch.device("cpu"),
        )
        for index in indices
    ]
    if name == "csv":
        schedule = torch_schedules._PipelineScheduleRuntime(stages, microbatches, loss_fn=loss_of)
        schedule._load_csv(csv)
        return schedule
    cls = torch_schedules.get_schedule_class(name)
    return cls(stages if len(stages) > 1 else stages[0], microbatches, loss_fn=loss_of)


def stages_of(schedule):
    return schedule._stages if hasattr(schedule, "_stages") else [schedule._stage]


def batch(step, microbatches):
    generator = torch.Generator().manual_seed(step)
    text = torch.randint(VOCABULARY, (2 * microbatches, CONTEXT + 1), generator=generator)
    # torch 2.9 compares strides of microbatches.
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def run_step(schedule, step, microbatches, function=None):
    """One training step, or schedule.eval. Returns the losses of the last stage, else an empty list."""
    inputs, targets = batch(step, microbatches)
    stages = stages_of(schedule)
    losses = []
    arguments = [inputs] if any(stage.is_first for stage in stages) else []
    named = {}
    if any(stage.is_last for stage in stages):
        named = {"target": targets, "losses": losses}
    (function or schedule.step)(*arguments, **named)
    return [loss.item() for loss in losses]
