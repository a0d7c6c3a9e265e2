"""Which data-parallel and tensor-parallel rank a process is, without a collective."""

from __future__ import annotations

import sys
from typing import Any, Iterable, Optional, Tuple

PIPELINE = ("pp", "pipeline")
# GPUs that share the work of one pipeline position. All other dimensions are data parallel.
TENSOR = ("tp", "cp", "sp", "ep", "etp", "tensor", "context", "expert")


def find_mesh(modules: Iterable[Any]) -> Optional[Any]:
    """The mesh of a DTensor parameter, with all its dimensions, if one of them is the pipeline."""
    for module in modules:
        for parameter in module.parameters():
            mesh = getattr(parameter, "device_mesh", None)
            if mesh is None:
                continue
            root = getattr(mesh, "_get_root_mesh", None)
            whole = root() if callable(root) else mesh
            if any(name in PIPELINE for name in getattr(whole, "mesh_dim_names", None) or ()):
                return whole
            break  # All parameters of a module have meshes of the same root.
    return None


def ranks_of_mesh(mesh: Any) -> Tuple[int, int]:
    """(dp_rank, tp_rank): the position along all dimensions of that kind, the last one fastest."""
    dp_rank = tp_rank = 0
    sizes = mesh.shape
    for dimension, name in enumerate(mesh.mesh_dim_names or ()):
        if name in PIPELINE:
            continue
        rank, size = mesh.get_local_rank(name), sizes[dimension]
        if name in TENSOR:
            tp_rank = tp_rank * size + rank
        else:
            dp_rank = dp_rank * size + rank
    return dp_rank, tp_rank


def ranks_of_group(group: Any, pp_rank: int) -> Tuple[int, int]:
    """(dp_rank, 0) from the process group of the pipeline alone.

    Frameworks number ranks so that the members of a pipeline have a constant distance. Then the
    pipelines of the job are numbered by their first ranks. Without a mesh, tensor parallel ranks
    count as pipelines of their own.
    """
    distributed = sys.modules["torch.distributed"]
    members = distributed.get_process_group_ranks(group or distributed.group.WORLD)
    if len(members) < 2:
        return members[0], 0
    distance, first = members[1] - members[0], members[0]
    block = distance * len(members)
    return first // block * distance + first % distance, 0
