"""Hugging Face's Trainer with a model made from a configuration, so that nothing is downloaded."""

import sys

import torch
import transformers
from tiny_data import LENGTH, VOCABULARY, WIDTH, Codes


def main():
    steps, ranks = int(sys.argv[1]), int(sys.argv[2])
    transformers.set_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=4
    )
    data = [{"input_ids": codes, "labels": codes} for codes, _ in Codes(4 * steps * ranks)]
    arguments = transformers.TrainingArguments(
        output_dir="trainer",
        use_cpu=True,
        max_steps=steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    torch.set_num_threads(1)
    trainer = transformers.Trainer(transformers.GPT2LMHeadModel(config), arguments, train_dataset=data)
    trainer.train()
    if trainer.is_world_process_zero():
        for entry in trainer.state.log_history:
            if "loss" in entry:
                print("loss", entry["loss"], entry["grad_norm"], flush=True)


if __name__ == "__main__":
    main()
