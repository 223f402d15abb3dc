"""The program that --check writes: it says yes to the right numbers and no to wrong ones."""

from __future__ import annotations

import subprocess

import numpy as np
from c_programs import STRICT, exported, models, need, samples_for


def run_check(folder, *flags: str) -> subprocess.CompletedProcess:
    sources = [str(folder / "undivided.c"), str(folder / "undivided_check.c")]
    command = ["gcc", *STRICT, *flags, *sources, "-lm", "-o", str(folder / "check")]
    subprocess.run(command, check=True)
    return subprocess.run([str(folder / "check")], capture_output=True, text=True)


def test_it_compares(tmp_path):
    need("gcc")
    (model,) = models(["digits-attention"])
    exported(model, tmp_path, check=samples_for(model, 5).astype(np.uint8))
    done = run_check(tmp_path, "-O2")
    assert done.returncode == 0
    assert done.stdout.startswith("5 samples, bits ") and done.stdout.endswith(": the same\n")
    # Another build has the same bits; another weight has not, and is found out.
    assert run_check(tmp_path, "-O0").stdout == done.stdout
    source = (tmp_path / "undivided.c").read_text()
    start = source.index("static const float output_1_bias[10] = {") + 42
    (tmp_path / "undivided.c").write_text(source[:start] + "1e-3f + " + source[start:])
    wrong = run_check(tmp_path, "-O2")
    assert wrong.returncode == 1 and wrong.stdout.endswith(": NOT the same\n")


def test_nan_is_not_the_same(tmp_path):
    need("gcc")
    (model,) = models(["smallest"])
    exported(model, tmp_path, check=samples_for(model, 2))
    source = (tmp_path / "undivided.c").read_text()
    (tmp_path / "undivided.c").write_text(
        source.replace("y[o] = bias ? sum", "y[o] = bias ? (sum - sum) / (sum - sum)")
    )
    assert run_check(tmp_path, "-O2").returncode == 1
