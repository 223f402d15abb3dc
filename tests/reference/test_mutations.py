"""A broken backward pass is noticed: a sample of the changes that `tests/mutate.py` makes."""

import sys
from pathlib import Path

import numpy as np
import pytest
from conformance import MODULES

sys.path.insert(0, str(Path(__file__).parent.parent))

import mutate

SAMPLED = 6
"""One change in so many is tried here; the script tries all."""


@pytest.mark.parametrize("module", [*MODULES, "engine"])
def test_a_change_is_noticed(module):
    changes = list(mutate.mutants(module))
    assert changes or module in {"add", "reshape"}  # these two have nothing that could be changed
    with np.errstate(all="ignore"):
        survivors = [str(m) for m in changes[::SAMPLED] if not m.equivalent and not m.is_noticed()]
    assert not survivors


def test_what_is_excused_exists_and_computes_the_same():
    excused = [m for m in mutate.mutants(*{m for m, _ in mutate.EQUIVALENT}) if m.equivalent]
    assert {(m.module, m.change) for m in excused} == set(mutate.EQUIVALENT)
    with np.errstate(all="ignore"):
        noticed = [str(m) for m in excused if m.is_noticed()]
    assert not noticed


def test_the_modules_themselves_are_whole():
    """A check that notices everything would prove nothing."""
    for module in (*MODULES, "engine"):
        assert not mutate.is_noticed(module, mutate.parsed(module))


def test_the_script_reports(capsys):
    assert mutate.main(["pool"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("1 compute the same, 0 survived")
