"""FSDP2 as its tutorial uses it: fully_shard for each block and the root, mixed precision, prefetch."""

import sys

import torch
import torch.distributed as dist
from tiny_data import Codes, TinyGPT
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def main():
    steps, ranks = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TinyGPT()
    options = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32),
        "mesh": dist.device_mesh.init_device_mesh("cpu", (ranks,)),
    }
    for layer in model.blocks.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    layers = model.blocks.layers
    for layer, following in zip(layers, layers[1:]):
        layer.set_modules_to_forward_prefetch([following])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = Codes(4 * ranks)
    codes, targets = zip(*[data[4 * dist.get_rank() + i] for i in range(4)])
    codes, targets = torch.stack(codes), torch.stack(targets)
    for _ in range(steps):
        model.unshard()
        _, loss = model(codes, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print("loss", loss.item().hex(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
