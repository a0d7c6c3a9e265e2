"""Which data-parallel and tensor-parallel rank a process is, without a collective.

A DeviceMesh of all processes with a pipeline dimension says it by its coordinates. Some frameworks have no such mesh
at the parameters: torchtitan makes several meshes of one, which has the dimension "world" only, and
the parameters have the part without the pipeline. Then the ranks follow from process groups. A group
of size k whose members have the distance d divides the ranks into blocks of d * k. Within a block,
each rank r belongs to the group r % d. So "which group" is r // (d * k) * d + r % d. This is applied
to the group of the pipeline, and then, to these numbers, for each tensor-parallel dimension. What is
left is the data-parallel rank. Frameworks number ranks so that this holds.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterable, List, Optional, Tuple

from perseus.adapters._warning import warn

PIPELINE = ("pp", "pipeline")
# GPUs that share the work of one pipeline position. All other dimensions are data parallel.
TENSOR = ("tp", "cp", "sp", "ep", "etp", "tensor", "context", "expert")
# Parameters of experts have a mesh that cuts the same GPUs in another way.
EXPERT = ("ep", "etp", "expert")


def find_ranks(modules: Iterable[Any], mesh: Any, group: Any) -> Tuple[int, int]:
    """(dp_rank, tp_rank) from the mesh of the user, the DTensor parameters, or the pipeline alone.

    `group` is the process group of the pipeline. None: all processes. A mesh of the user that is
    wrong (no mesh, or not that of the pipeline) is a warning, and is not used.
    """
    if mesh is not None:
        try:
            return _ranks(mesh, group)
        except Exception as error:
            warn(
                "attach: the argument mesh is not used, because it is not the DeviceMesh of this job "
                "(%s: %s); the ranks come from the process groups (see docs/frameworks.md)",
                type(error).__name__,
                error,
            )
    return _ranks(find_mesh(modules), group)


def find_ranks_without_pipeline(modules: Iterable[Any], mesh: Any) -> Tuple[int, int]:
    """As find_ranks(), for a job in which each process, or each tensor-parallel group, has the whole
    model. Before torch.distributed is initialized, there is one process."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 0
    if mesh is None:
        mesh = find_mesh(modules)
    tensor = [] if mesh is None else _tensor_dimensions(mesh)
    rank = distributed.get_rank()
    return ranks_of_groups(rank, [rank], [_members(mesh.get_group(name)) for name in tensor])


def _ranks(mesh: Any, group: Any) -> Tuple[int, int]:
    distributed = sys.modules["torch.distributed"]
    if mesh is not None and _has_pipeline(mesh) and mesh.size() == distributed.get_world_size():
        for name in set(PIPELINE) & set(mesh.mesh_dim_names):
            along, pipeline = _members(mesh.get_group(name)), _members(group)
            if along != pipeline:
                raise ValueError(
                    f"its dimension {name!r} has the processes {along}, but the pipeline has {pipeline}"
                )
        return ranks_of_mesh(mesh)
    tensor = [] if mesh is None else _tensor_dimensions(mesh)
    return ranks_of_groups(
        distributed.get_rank(), _members(group), [_members(mesh.get_group(name)) for name in tensor]
    )


def find_mesh(modules: Iterable[Any]) -> Optional[Any]:
    """The mesh of a DTensor parameter: with the pipeline dimension, or the most tensor dimensions."""
    best, most = None, -1
    for mesh in _meshes(modules):
        root = getattr(mesh, "_get_root_mesh", None)
        whole = root() if callable(root) else mesh
        for candidate in (mesh, whole):
            if _has_pipeline(candidate):
                return candidate
        if any(name in EXPERT for name in mesh.mesh_dim_names or ()):
            continue
        count = len(_tensor_dimensions(mesh))
        if count > most:
            best, most = mesh, count
    return best


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


def ranks_of_groups(
    rank: int, pipeline: List[int], tensor: Iterable[List[int]] = ()
) -> Tuple[int, int]:
    """(dp_rank, tp_rank) from the members of the groups that this rank belongs to.

    Without `tensor`, tensor parallel ranks count as pipelines of their own.
    """
    number = _numbering(pipeline)
    tp_rank = 0
    for members in tensor:
        tp_rank = tp_rank * len(members) + members.index(rank)
        number = _after(number, _numbering([number(member) for member in members]))
    return number(rank), tp_rank


def _numbering(members: List[int]) -> Callable[[int], int]:
    """The function from a rank to the number of its group, where `members` are one group."""
    if len(members) < 2:
        return lambda rank: rank
    distance = members[1] - members[0]
    block = distance * len(members)
    return lambda rank: rank // block * distance + rank % distance


def _after(first: Callable[[int], int], then: Callable[[int], int]) -> Callable[[int], int]:
    return lambda rank: then(first(rank))


def _members(group: Any) -> List[int]:
    distributed = sys.modules["torch.distributed"]
    return list(distributed.get_process_group_ranks(group or distributed.group.WORLD))


def _meshes(modules: Iterable[Any]) -> List[Any]:
    found = []
    for module in modules:
        for parameter in module.parameters():
            mesh = getattr(parameter, "device_mesh", None)
            if mesh is not None and not any(mesh is other for other in found):
                found.append(mesh)
    return found


def _has_pipeline(mesh: Any) -> bool:
    return any(name in PIPELINE for name in mesh.mesh_dim_names or ())


def _tensor_dimensions(mesh: Any) -> List[str]:
    names, sizes = mesh.mesh_dim_names or (), mesh.shape
    return [name for name, size in zip(names, sizes) if name in TENSOR and size > 1]
