"""One rank of megatron_test.py: trains examples/megatron with and without Perseus.

Writes RESULTS/RANK.json: for each schedule the order of Megatron-core's own table and the order in
which autograd really ran, what Perseus counted, and hashes of the losses and gradients.
"""

import functools
import hashlib

import on_cpu

on_cpu.without_cuda()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402
from megatron.core.transformer import TransformerConfig, cuda_graphs  # noqa: E402

from comparison import observe, observe_ramp, run_worker  # noqa: E402
from observed import load_example  # noqa: E402

STEPS, BATCH, MICROBATCHES = 4, 2, 8
NAMES = ("forward_step", "backward_step", "forward_backward_no_pipelining",
         "forward_backward_pipelining_with_interleaving",
         "forward_backward_pipelining_without_interleaving",
         "hybrid_context_parallel_forward_backward")  # fmt: skip
ORIGINALS = {name: getattr(schedules, name, None) for name in NAMES}

train = load_example("megatron")

seen = []  # What autograd ran in this process in the current step: (kind, microbatch, stage).


class Mark(torch.autograd.Function):
    """The identity, which writes down when it runs forward and backward."""

    @staticmethod
    def forward(context, x, microbatch, stage):
        context.place = (microbatch, stage)
        seen.append(("forward", microbatch, stage))
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        seen.append(("backward", *context.place))
        return gradient, None, None


class ObservedStage(train.Stage):
    def __init__(self, config, stage, stages):
        super().__init__(config, stage, stages)
        self.stage, self.microbatch = stage, 0

    def forward(self, codes):
        output = Mark.apply(super().forward(codes), self.microbatch, self.stage)
        self.microbatch += 1
        return output


class Job:
    def __init__(self, chunks):
        ranks = dist.get_world_size()
        self.virtual = chunks if chunks > 1 else None
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(1, ranks, self.virtual)
        self.config = TransformerConfig(
            num_layers=train.BLOCKS, hidden_size=train.WIDTH, num_attention_heads=4,
            pipeline_dtype=torch.float32, pipeline_model_parallel_size=ranks,
            virtual_pipeline_model_parallel_size=self.virtual, batch_p2p_sync=False,
            microbatch_group_size_per_vp_stage=ranks, overlap_p2p_comm=chunks > 1,
            batch_p2p_comm=chunks == 1,
        )  # fmt: skip
        rank = parallel_state.get_pipeline_model_parallel_rank()
        self.stages = [chunk * ranks + rank for chunk in range(chunks)]
        self.model = [ObservedStage(self.config, stage, chunks * ranks) for stage in self.stages]
        self.optimizer = torch.optim.SGD([p for m in self.model for p in m.parameters()], lr=0.01)
        self.batches = [train.text(BATCH, "cpu") for _ in self.model]

    def run_step(self, microbatches=MICROBATCHES, **named):
        for stage in self.model:
            stage.microbatch = 0
        seen.clear()
        self.optimizer.zero_grad()
        losses = schedules.get_forward_backward_func()(
            forward_step_func=train.forward_step, data_iterator=self.batches, model=self.model,
            num_microbatches=microbatches, seq_length=train.CONTEXT, micro_batch_size=BATCH, **named,
        )  # fmt: skip
        return [value["loss"].item().hex() for value in losses]

    def run(self, handle=None, ramp=False):
        """Trains, with an evaluation between steps, where `handle` detaches. Returns a hash."""
        digest = hashlib.sha256()
        for step in range(STEPS):
            if step == 2:
                with torch.no_grad():
                    self.run_step(forward_only=True)
                if handle is not None:
                    handle.detach()
            losses = self.run_step(MICROBATCHES * 2 if ramp and step >= 2 else MICROBATCHES)
            digest.update(repr(losses).encode())
            for parameter in self.optimizer.param_groups[0]["params"]:
                digest.update(parameter.grad.numpy().tobytes())
            self.optimizer.step()
        return digest.hexdigest()

    def claimed_order(self):
        """From the table of Megatron-core. Its order has a chunk (from 1), negative if backward."""
        converter = next(
            vars(module)["convert_schedule_table_to_order"]
            for module in (cuda_graphs, schedules)
            if hasattr(module, "convert_schedule_table_to_order")  # Which one depends on the version.
        )
        chunks = len(self.stages)
        table = schedules.get_schedule_table(
            MICROBATCHES, chunks, self.config.microbatch_group_size_per_vp_stage
        )
        _, _, warmup, _ = schedules.get_pp_rank_microbatches(
            MICROBATCHES, chunks, self.config.microbatch_group_size_per_vp_stage
        )
        counts, order = {}, []
        for entry in converter(warmup, chunks, table):
            counts[entry] = counts.get(entry, -1) + 1
            kind = "forward" if entry > 0 else "backward"
            order.append((kind, counts[entry], self.stages[abs(entry) - 1]))
        return order


def train_job(job, handle=None, ramp=False):
    return job.run(handle, ramp), list(seen)


def patched(job):
    return [name for name, value in ORIGINALS.items() if getattr(schedules, name, None) is not value]


def observe_all(results):
    found = {}
    for name, chunks in (("1F1B", 1), ("interleaved", 2)):
        make = functools.partial(Job, chunks)
        found[name] = observe(results, name, make, train_job, patched, Job.claimed_order, "megatron")
    found["ramp"] = observe_ramp(results, Job(1), train_job, "megatron")
    return found


if __name__ == "__main__":
    run_worker(observe_all)
