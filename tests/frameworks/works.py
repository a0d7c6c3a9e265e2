"""What works with a framework: a test says it, and a test that passes leaves a record of it.

    @works("torch", "evaluation between steps")
    def test_evaluation_between_steps_is_not_recorded(self): ...

table.py makes the table of docs/frameworks.md from the records. A record has the version that was
installed when the test ran. It goes into the directory PERSEUS_FRAMEWORK_RESULTS, if that is set.
"""

import functools
import importlib.metadata
import json
import os
import pathlib


def works(package, feature):
    def decorate(test):
        @functools.wraps(test)
        def run(self):
            before, file = problems_of(self), record_file(test)
            if file.exists():  # An earlier run left it.
                file.unlink()
            test(self)
            if problems_of(self) == before:  # Subtests fail without an exception.
                write(file, package, feature)

        return run

    return decorate


def problems_of(test):
    result = test._outcome.result if test._outcome is not None else None
    return None if result is None else len(result.failures) + len(result.errors)


def record_file(test):
    """None of these files is written if the variable is not set."""
    name = f"{pathlib.Path(test.__code__.co_filename).stem}.{test.__qualname__}.json"
    return pathlib.Path(os.environ.get("PERSEUS_FRAMEWORK_RESULTS", os.devnull)) / name


def write(file, package, feature):
    if "PERSEUS_FRAMEWORK_RESULTS" not in os.environ:
        return
    version = importlib.metadata.version(package).partition("+")[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {"package": package, "version": version, "feature": feature, "test": file.stem}
    file.write_text(json.dumps(found) + "\n")
