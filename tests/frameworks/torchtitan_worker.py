"""One rank of torchtitan_test.py: pipeline and FSDP, built and called as torchtitan does.

Read in torchtitan's sources (distributed/pipeline_parallel.py, distributed/parallel_dims.py, trainer.py,
of August 2026): all meshes are made of one with the dimension "world"; each stage gets the group of
"pp"; its module is exchanged after the stage was made; the schedule has scale_grads=False, or comes
from a CSV; several schedule.step() belong to one step of the optimizer; a validation calls
schedule.eval(). torchtitan passes arguments of each microbatch to step(), which this version of torch
does not have, so the whole batch is passed here.

Writes RESULTS/RANK.json: for each schedule, hashes of all that was computed with and without Perseus.
"""

import functools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import schedules as torch_schedules

import tiny_gpt
from comparison import compare, run_worker

MICROBATCHES, PP, FSDP = 4, 2, 2
SCHEDULES = ("1F1B", "Interleaved1F1B", "ZBVZeroBubble", "csv")


def build_meshes():
    world = init_device_mesh("cpu", (PP * FSDP,), mesh_dim_names=("world",))
    data = world._unflatten(0, (PP, FSDP, 1, 1), ("pp", "batch", "cp", "tp"))
    dense = world._unflatten(0, (PP, 1, FSDP, 1), ("pp", "dp_replicate", "fsdp", "tp"))
    return data["pp"], dense["fsdp"]


def build_schedule(name, pp_mesh, fsdp_mesh, csv):
    rank = pp_mesh.get_local_rank()
    indices = tiny_gpt.stage_indices("Interleaved1F1B" if name == "csv" else name, rank, PP)
    count = len(indices) * PP
    stages = []
    for index in indices:
        module = tiny_gpt.StageModule(index, count)
        stage = tiny_gpt.ObservedStage(
            module, index, count, torch.device("cpu"), group=pp_mesh.get_group("pp")
        )
        fully_shard(module.block, mesh=fsdp_mesh)
        stage.submod = fully_shard(module, mesh=fsdp_mesh)
        stages.append(stage)
    named = {"n_microbatches": MICROBATCHES, "loss_fn": tiny_gpt.loss_of, "scale_grads": False}
    if name == "csv":
        schedule = torch_schedules._PipelineScheduleRuntime(stages, **named)
        schedule._load_csv(csv)
        return schedule
    cls = torch_schedules.get_schedule_class(name)
    return cls(stages if len(stages) > 1 else stages[0], **named)


def observe_all(results):
    meshes = build_meshes()
    csv = results / "schedule.csv"
    if dist.get_rank() == 0:
        # Stages with FSDP can be built without another rank.
        compute = build_schedule("Interleaved1F1B", *meshes, None)
        rows = [compute.pipeline_order[rank] for rank in range(PP)]
        csv.write_text("".join(",".join(str(a or "") for a in row) + "\n" for row in rows))
    dist.barrier()

    def make(name):
        schedule = build_schedule(name, *meshes, csv)
        return schedule, lambda run, batch, _: tiny_gpt.run_step(schedule, batch, MICROBATCHES, run)

    return {name: compare(functools.partial(make, name), results / name) for name in SCHEDULES}


if __name__ == "__main__":
    run_worker(observe_all)
