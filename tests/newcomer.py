"""A newcomer's path, from an empty folder to a model in onnxruntime.

It installs the wheel into a fresh environment, runs the example of README.md, then every command
of "Your own model and data, with the command" in docs/how-to/train.md, as it stands there. Then it
opens the report in a browser, if playwright and a browser are installed, and runs the exported
model. The packages that continua needs are those of the interpreter that runs this; `--install`
installs them instead, with constraints.txt.

    .venv/bin/python tests/newcomer.py [--install]
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADING = "## Your own model and data, with the command"
OPEN = """
import os, shutil, sys
from pathlib import Path
try:
    from playwright.sync_api import Error, sync_playwright
except ImportError:
    sys.exit("playwright is not installed: the report is not opened")
(file,) = Path("runs").glob("*/sweep/report.html")
flags = ["--no-sandbox", "--single-process", "--no-zygote", "--disable-gpu"]
with sync_playwright() as driver:
    try:
        path = os.environ.get("CONTINUA_CHROMIUM") or shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=path, args=flags)
    except Error as error:
        sys.exit(f"there is no browser here: {str(error).splitlines()[0]}")
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(file.resolve().as_uri())
    page.wait_for_selector("body[data-ready]")
    assert not errors, errors
"""
RUN = """
import numpy, onnxruntime
model = onnxruntime.InferenceSession("model.onnx")
(put,) = model.get_inputs()
(out,) = model.run(None, {put.name: numpy.zeros((3, 2), numpy.float32)})
assert out.shape == (3, 2), out.shape
"""


def step(name, *command, optional=False):
    """Run a command in the current folder; what it says is shown if it fails."""
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not optional:
        sys.exit(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    note = f" ({done.stderr.strip()})" if done.returncode else ""
    print(f"{time.monotonic() - started:6.1f} s  {name}{note}", flush=True)


def documented():
    """The commands of the page on training, in order."""
    section = (ROOT / "docs/how-to/train.md").read_text("utf-8").partition(HEADING)[2]
    lines = re.search(r"```\n(.*?)```", section, re.DOTALL)[1].splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def main(install):
    """The path, in the current folder."""
    step(
        "build the wheel", sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", ".", ROOT
    )
    (wheel,) = Path().glob("continua_torch-*.whl")
    step("make an environment", sys.executable, "-m", "venv", "env")
    python = str(Path("env/bin/python").absolute())
    needed = (f"{wheel}[recipes,export]", "-c", ROOT / "constraints.txt")
    if not install:
        import torch

        (site,) = Path("env/lib").glob("python*/site-packages")
        (site / "packages.pth").write_text(str(Path(torch.__file__).parents[1]))
        needed = (wheel, "--no-deps", "--force-reinstall")
    step("install the wheel", python, "-m", "pip", "install", "-q", *needed)
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    step("the example of the README", python, "-c", example[1])
    for command in documented():
        assert command[0] == "continua", command
        step(shlex.join(command), str(Path(python).with_name("continua")), *command[1:])
    step("open the report in a browser", python, "-c", OPEN, optional=True)
    step("run the model in onnxruntime", python, "-c", RUN)


if __name__ == "__main__":
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        main("--install" in sys.argv[1:])
    used = os.times().children_user + os.times().children_system
    print(f"{time.monotonic() - began:6.1f} s  in all, {used:.1f} s of CPU time")
