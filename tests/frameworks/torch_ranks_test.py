"""Which ranks of a job a process has, from the meshes and groups of torch. Each rank of a job of 16 is
a forked process for a moment, with a process group that does nothing.
"""

import json
import os
import unittest

import torch
import torch._dynamo  # DTensor imports it at its first use, which takes a second in each child.
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from perseus.adapters import _mesh
from works import works

RANKS = 16
torch.set_num_threads(1)


def as_rank(rank, function):
    """The result of the function in a new process of this rank. (torch keeps groups in global state.)"""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
            os.write(writing, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return tuple(json.loads(result))


def module_on(*meshes):
    """A module with a DTensor parameter on each of these meshes. None: an ordinary parameter."""
    module = torch.nn.ParameterList()
    for mesh in meshes:
        weight = torch.zeros(2, 2)
        if mesh is not None:
            weight = distribute_tensor(weight, mesh, [Replicate()] * mesh.ndim)
        module.append(torch.nn.Parameter(weight))
    return module


class RanksTest(unittest.TestCase):
    def check(self, ranks_of, expected):
        """`ranks_of` returns (dp_rank, tp_rank) of a rank. `expected` computes it from the rank."""
        for rank in range(RANKS):
            with self.subTest(rank=rank):
                self.assertEqual(as_rank(rank, ranks_of), expected(rank))

    def test_a_mesh_with_the_pipeline(self):
        """Its coordinates say it, whatever dimension is the first."""

        def ranks_of():
            mesh = init_device_mesh("cpu", (2, 4, 2), mesh_dim_names=("tp", "pp", "dp"))
            return _mesh.find_ranks([], mesh, mesh.get_group("pp"))

        self.check(ranks_of, lambda rank: (rank % 2, rank // 8))

    def test_a_mesh_that_is_not_that_of_the_pipeline_is_not_used(self):
        """Its names are wrong: the ranks are those that the groups say, and no two are the same."""

        def ranks_of():
            mesh = init_device_mesh("cpu", (4, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
            with self.assertLogs("perseus", "WARNING") as logs:
                found = _mesh.find_ranks([], mesh, mesh.get_group("dp"))
            self.assertEqual(len(logs.output), 1)
            self.assertIn("its dimension 'pp' has the processes", logs.output[0])
            return found

        self.check(ranks_of, lambda rank: (rank // 4 * 2 + rank % 2, 0))

    @works("torch", "ranks from the meshes of DTensor parameters")
    def test_a_parameter_on_a_part_of_such_a_mesh(self):
        def ranks_of():
            mesh = init_device_mesh("cpu", (2, 4, 2), mesh_dim_names=("pp", "dp", "tp"))
            module = module_on(None, mesh["tp"])
            return _mesh.find_ranks([module_on(None), module], None, mesh.get_group("pp"))

        self.check(ranks_of, lambda rank: (rank % 8 // 2, rank % 2))

    def test_the_meshes_of_torchtitan(self):
        """All are made of one with the dimension "world". Parameters have one without the pipeline."""

        def ranks_of(mesh_of_user=None):
            world = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("world",))
            data = world._unflatten(0, (2, 4, 1, 2), ("pp", "batch", "cp", "tp"))
            dense = world._unflatten(0, (2, 2, 2, 2), ("pp", "dp_replicate", "fsdp", "tp"))
            sparse = world._unflatten(0, (2, 2, 1, 4), ("pp", "dp_replicate", "efsdp", "ep"))
            module = module_on(
                sparse["dp_replicate", "efsdp", "ep"],
                dense["dp_replicate", "fsdp"],
                dense["dp_replicate", "fsdp", "tp"],
            )
            mesh = {"world": world, "dense": dense, "pp": data["pp"]}.get(mesh_of_user)
            return _mesh.find_ranks([module], mesh, data["pp"].get_group())

        expected = lambda rank: (rank % 8 // 2, rank % 2)  # noqa: E731
        self.check(ranks_of, expected)
        self.check(lambda: ranks_of("dense"), expected)
        # These meshes do not say which dimension is tensor parallel, so each rank has its own
        # pipeline.
        self.check(lambda: ranks_of("world"), lambda rank: (rank % 8, 0))
        self.check(lambda: ranks_of("pp"), lambda rank: (rank % 8, 0))

    def test_context_and_tensor_parallel(self):
        def ranks_of():
            world = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("world",))
            mesh = world._unflatten(0, (2, 2, 2, 2), ("pp", "dp", "cp", "tp"))
            module = module_on(mesh["dp", "cp", "tp"])
            return _mesh.find_ranks([module], None, mesh.get_group("pp"))

        self.check(ranks_of, lambda rank: (rank % 8 // 4, rank % 4))

    def test_neither_mesh_nor_group(self):
        self.check(lambda: _mesh.find_ranks([module_on(None)], None, None), lambda rank: (0, 0))

    def test_of_a_mesh(self):
        class Mesh:
            mesh_dim_names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
            shape = (4, 2, 3, 2, 8)
            ranks = {"pp": 1, "dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 5}

            def get_local_rank(self, name):
                return self.ranks[name]

        self.assertEqual(_mesh.ranks_of_mesh(Mesh()), (1 * 3 + 2, 1 * 8 + 5))

    def test_of_groups(self):
        def ranks(members, *tensor):
            return _mesh.ranks_of_groups(members[0], members, tensor)

        # There are eight ranks, with pipelines of four: pp is the first or the last dimension.
        self.assertEqual([ranks([0, 2, 4, 6]), ranks([1, 3, 5, 7])], [(0, 0), (1, 0)])
        self.assertEqual([ranks([0, 1, 2, 3]), ranks([4, 5, 6, 7])], [(0, 0), (1, 0)])
        # Two blocks of two interleaved pipelines.
        self.assertEqual(ranks([5, 7]), (3, 0))
        # Tensor parallel is the first dimension. Data parallel and the pipeline follow.
        self.assertEqual(ranks([14, 15], [6, 14]), (3, 1))
        self.assertEqual(ranks([2, 3], [2, 10]), (1, 0))


if __name__ == "__main__":
    unittest.main()
