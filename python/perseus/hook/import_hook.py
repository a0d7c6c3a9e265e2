"""Calls an adapter when the module of its framework was imported (see sitecustomize.py).

A finder in front of all others looks for the modules below. It lets the other finders find the
module, and calls the adapter after the module was executed. The module, its loader and its spec stay
what they are. For every other module it costs one look-up in a map.
"""

import importlib
import importlib.util
import os
import sys

# Module of the framework, and the adapter whose auto() is called with it.
ADAPTERS = {
    "torch.optim.optimizer": "perseus.adapters.torch_training",
    "torch.distributed.pipelining.schedules": "perseus.adapters.torch_pipelining",
    "deepspeed.runtime.pipe.engine": "perseus.adapters.deepspeed",
    "megatron.core.pipeline_parallel.schedules": "perseus.adapters.megatron",
}


class AttachFinder:
    """Finds nothing by itself."""

    def __init__(self):
        self._finding = set()

    def find_spec(self, name, path=None, target=None):
        if name not in ADAPTERS or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is not None and spec.loader is not None:
            self._call_after(spec.loader)
        return spec

    @staticmethod
    def _call_after(loader):
        execute = getattr(loader, "exec_module", None)
        if execute is None or "exec_module" in vars(loader):
            return

        def exec_module(module):
            del loader.exec_module  # The method of the class is back.
            execute(module)
            attach(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # A loader with __slots__: this framework is not attached.


class PackageFinder:
    """Finds the package `perseus` beside this directory, if no other finder finds it.

    The directory itself must not be on sys.path: it may contain other packages of the system, which
    would mix with those of a virtual environment.
    """

    def find_spec(self, name, path=None, target=None):
        if name != "perseus":
            return None
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        return importlib.util.spec_from_file_location(
            name,
            os.path.join(package, "__init__.py"),
            submodule_search_locations=[package],
        )


_has_failed = False


def attach(module):
    """Calls the adapter of a framework's module. Never fails. Reports the first failure."""
    global _has_failed
    try:
        importlib.import_module(ADAPTERS[module.__name__]).auto(module)
    except Exception as error:
        if not _has_failed:
            _has_failed = True
            print(
                f"perseus: cannot attach to {module.__name__} ({error}); training runs without Perseus",
                file=sys.stderr,
            )


def install(attaches):
    if attaches:
        sys.meta_path.insert(0, AttachFinder())
    sys.meta_path.append(PackageFinder())
