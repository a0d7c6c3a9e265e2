"""The command `perseus` of the wheel: it becomes the program that the wheel contains."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "perseus"
    os.execv(program, ["perseus", *sys.argv[1:]])
