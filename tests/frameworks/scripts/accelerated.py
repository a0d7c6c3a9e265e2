"""The loop of accelerate: prepare, accumulate, accelerator.backward, clip, step."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from tiny_data import Codes, TinyGPT


def main():
    steps, ranks = int(sys.argv[1]), int(sys.argv[2])
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(0)
    torch.set_num_threads(1)
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    loader = torch.utils.data.DataLoader(Codes(4 * steps * ranks), batch_size=2, shuffle=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for codes, targets in loader:
        with accelerator.accumulate(model):
            _, loss = model(codes, targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.is_main_process:
            print("loss", loss.item().hex(), flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
