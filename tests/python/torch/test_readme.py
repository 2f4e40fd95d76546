"""The README's PyTorch start does what it says."""

import contextlib
import io
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_start():
    blocks = re.findall(r"^```python\n(.*?)^```\n+```text\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)
    starts = [(code, text) for code, text in blocks if "nvfp4.torch" in code]
    assert len(starts) == 1
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(starts[0][0], "README.md", "exec"), {})
    assert out.getvalue() == starts[0][1]
