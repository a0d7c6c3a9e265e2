"""Builds the wheel: CMake compiles the extension modules and libperseus.so, and installs them."""

import os
import pathlib
import re
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


def version():
    return re.search(r"project\(perseus VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


class CMakeBuild(build_ext):
    def run(self):
        build = pathlib.Path(self.build_temp).resolve() / "cmake"
        destination = pathlib.Path(self.build_lib).resolve()
        configure = [
            "-GNinja",
            f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DCMAKE_INSTALL_PREFIX={destination}",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DPERSEUS_BUILD_TESTS=OFF",
            "-DPERSEUS_BUILD_BENCH=OFF",
            "-DPERSEUS_BUILD_PAGE=OFF",
            "-DPERSEUS_REQUIRE_PYTHON=ON",
            "-DPERSEUS_PYTHON_DIR=.",
            "-DPERSEUS_PYTHON_SELF_CONTAINED=ON",
        ]
        subprocess.run(["cmake", "-S", ROOT, "-B", build, *configure], check=True)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count())
        subprocess.run(
            ["cmake", "--build", build, "--target", "python_package", "--parallel", jobs], check=True
        )
        subprocess.run(["cmake", "--install", build, "--component", "python"], check=True)

    def get_outputs(self):
        return [str(path) for path in pathlib.Path(self.build_lib, "perseus").rglob("*")]


setup(
    version=version(),
    # Not found by looking around: CMake puts everything into the package. The extension is named so
    # that the wheel is known to be one for this platform.
    packages=[],
    py_modules=[],
    ext_modules=[Extension("perseus._client", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
