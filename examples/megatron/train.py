"""Trains a small GPT with the pipeline schedules of Megatron-core, one process for each stage.

With --chunks 2, the schedule is interleaved. Nothing in this file depends on Perseus.
"""

import argparse
import functools
import pathlib

import torch
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from torch import nn

CONTEXT, VOCABULARY, WIDTH, BLOCKS = 32, 128, 32, 8


class Stage(nn.Module):
    """The layers of one stage. The first one has the embedding, the last one has the head."""

    model_type = ModelType.encoder_or_decoder

    def __init__(self, config, stage, stages):
        super().__init__()
        torch.manual_seed(stage)
        self.config, self.inputs = config, None
        self.embedding = nn.Embedding(VOCABULARY, WIDTH) if stage == 0 else None
        block = functools.partial(nn.TransformerEncoderLayer, dropout=0, norm_first=True)
        self.blocks = nn.ModuleList(block(WIDTH, 4, 4 * WIDTH) for _ in range(BLOCKS // stages))
        self.head = nn.Linear(WIDTH, VOCABULARY) if stage == stages - 1 else None
        self.register_buffer("future", torch.ones(CONTEXT, CONTEXT).triu(1).bool())

    def set_input_tensor(self, tensors):
        self.inputs = tensors[0] if isinstance(tensors, list) else tensors

    def forward(self, codes):
        x = self.embedding(codes.t()) if self.embedding else self.inputs
        for each in self.blocks:
            x = each(x, src_mask=self.future)
        return self.head(x) if self.head else x


def text(batch, device):
    """Yields batches of consecutive characters of this file: inputs, and one more as a target."""
    codes = torch.tensor([code % VOCABULARY for code in pathlib.Path(__file__).read_bytes()])
    generator = torch.Generator().manual_seed(0)
    while True:
        starts = torch.randint(len(codes) - CONTEXT - 1, (batch,), generator=generator)
        yield torch.stack([codes[start : start + CONTEXT + 1] for start in starts]).to(device)


def forward_step(batches, stage):
    windows = next(batches)

    def loss(logits):
        value = nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].t().flatten())
        return value, {"loss": value.detach().clone()}  # Megatron divides the value in place.

    return stage(windows[:, :-1]), loss


def main():
    parser = argparse.ArgumentParser()
    for name, default in [("steps", 20), ("microbatches", 8), ("batch", 4), ("chunks", 1)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.distributed.init_process_group()
    device = "cpu"
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.distributed.get_node_local_rank())
        torch.cuda.set_device(device)
    ranks, chunks = torch.distributed.get_world_size(), arguments.chunks
    parallel_state.initialize_model_parallel(1, ranks, virtual := chunks if chunks > 1 else None)
    config = TransformerConfig(
        num_layers=BLOCKS, hidden_size=WIDTH, num_attention_heads=4, pipeline_dtype=torch.float32,
        pipeline_model_parallel_size=ranks, virtual_pipeline_model_parallel_size=virtual,
        microbatch_group_size_per_vp_stage=ranks, batch_p2p_sync=False,
        overlap_p2p_comm=chunks > 1, batch_p2p_comm=chunks == 1,
    )  # fmt: skip
    pp_rank = parallel_state.get_pipeline_model_parallel_rank()
    model = [Stage(config, c * ranks + pp_rank, chunks * ranks).to(device) for c in range(chunks)]
    optimizer = torch.optim.Adam([p for stage in model for p in stage.parameters()], lr=1e-3)
    batches = [text(arguments.batch, device) for _ in model]
    for step in range(arguments.steps):
        losses = get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=batches, model=model, seq_length=CONTEXT,
            num_microbatches=arguments.microbatches, micro_batch_size=arguments.batch,
        )  # fmt: skip
        optimizer.step()
        optimizer.zero_grad()
        if pp_rank == ranks - 1:
            mean = sum(each["loss"].item() for each in losses) / len(losses)
            print(f"step {step}: loss {mean:.17g}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
