"""Attaches Perseus to a training program that does not mention it.

`perseus run` puts the directory of this file first on PYTHONPATH and sets PERSEUS_ATTACH=auto. Every
Python process of the job imports this file at its start. It imports nothing of Perseus before a
supported framework is imported, and never fails. If PERSEUS_ATTACH is unset or off, it attaches
nothing; the program can import the package. Then it runs the sitecustomize that it hides, if there
is one.
"""

import os
import sys


def _hidden_sitecustomize():
    """Runs the next sitecustomize on the path, as if this one did not exist. Its errors pass."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.realpath(os.path.dirname(__file__))
    path = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _install():
    try:
        # Not `import perseus.hook...`: that would import the package and its extension modules.
        from importlib.util import module_from_spec, spec_from_file_location

        file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "import_hook.py")
        spec = spec_from_file_location("_perseus_import_hook", file)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        module.install(attaches=os.environ.get("PERSEUS_ATTACH", "off") not in ("", "off"))
    except Exception as error:
        print(f"perseus: the import hook failed ({error!r}); nothing is attached", file=sys.stderr)


_install()
_hidden_sitecustomize()
