"""Runs each ```python block of docs/python.md by itself, as a reader would copy it."""

import importlib.util
import re
import shutil
import unittest

from support import SOURCES, ScratchTest

DOCUMENT = SOURCES / "docs" / "python.md"


class DocumentTest(ScratchTest):
    def test_blocks_run(self):
        shutil.copytree(SOURCES / "examples", self.scratch / "examples")
        # What the blocks use of torch, on a machine without a GPU.
        (self.scratch / "torch.py").write_text("class cuda:\n    def is_available(): return False\n")
        blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 6)
        for block in blocks:
            with self.subTest(block.splitlines()[-1]):
                # matplotlib is optional: it is larger than all other packages of the tests together.
                if "matplotlib" in block and not importlib.util.find_spec("matplotlib"):
                    continue
                self.run_python(block, PERSEUS_AGENT="off", PERSEUS_DEVICES="off")


if __name__ == "__main__":
    unittest.main()
