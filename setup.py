"""Builds the wheel: CMake compiles the extension modules, libperseus.so and the program, and installs them.

The modules use the stable ABI of Python 3.10, so the wheel works with each later Python, too.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


def version():
    return re.search(r"project\(perseus VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def cmake(*arguments):
    try:
        subprocess.run(["cmake", *map(str, arguments)], check=True)
    except FileNotFoundError:
        sys.exit("error: cmake is missing (install the packages of the build: scripts/quickstart does)")


class CMakeBuild(build_ext):
    def run(self):
        # A build directory that there is already saves making one.
        build = os.environ.get("PERSEUS_CMAKE_BUILD")
        if build is None:
            build = pathlib.Path(self.build_temp).resolve() / "cmake"
            options = {
                "Python3_EXECUTABLE": sys.executable,
                "CMAKE_BUILD_TYPE": "Release",
                # As in the presets: it halves the time.
                "CMAKE_UNITY_BUILD": "ON",
                "CMAKE_UNITY_BUILD_BATCH_SIZE": "16",
                "PERSEUS_BUILD_TESTS": "OFF",
                "PERSEUS_BUILD_BENCH": "OFF",
                "PERSEUS_REQUIRE_PYTHON": "ON",
            }
            defined = [f"-D{name}={value}" for name, value in options.items()]
            generator = ["-GNinja"] if shutil.which("ninja") else []
            cmake("-S", ROOT, "-B", build, *generator, *defined)
            cmake("--build", build, "--target", "python_package", "--parallel", os.cpu_count() or 1)
        with tempfile.TemporaryDirectory() as prefix:
            for component in ["python", "python_wheel"]:
                cmake("--install", build, "--prefix", prefix, "--component", component)
            (package,) = (file.parent for file in pathlib.Path(prefix).rglob("perseus/__init__.py"))
            destination = pathlib.Path(self.build_lib) / "perseus"
            shutil.rmtree(destination, ignore_errors=True)
            shutil.copytree(package, destination)
            # A wheel has no links: this is a second copy of libperseus.so.1.
            for copy in destination.glob("libperseus.so.1.*"):
                copy.unlink()


(ROOT / "build").mkdir(exist_ok=True)
setup(
    version=version(),
    # CMake puts all of the package together; the extension says that the wheel is for one platform.
    packages=[],
    py_modules=[],
    ext_modules=[Extension("perseus._client", sources=[], py_limited_api=True)],
    cmdclass={"build_ext": CMakeBuild},
    options={
        "egg_info": {"egg_base": "build"},  # Not beside the sources.
        "bdist_wheel": {"py_limited_api": "cp310"},
    },
)
