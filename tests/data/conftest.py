"""Builders of small data files, honest and not, and a check of the errors they should give."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest


def idx_bytes(array: np.ndarray) -> bytes:
    """A whole IDX file of a uint8 array."""
    sizes = b"".join(struct.pack(">I", size) for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, *, spelling: str = "-", compress: bool = False) -> None:
    """A small set in MNIST's four files: 12 training and 5 test images."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", 12), ("t10k", 5)):
        images = generator.integers(0, 256, (count, 28, 28))
        for kind, array in (("images-idx3", images), ("labels-idx1", np.arange(count) % 10)):
            content = idx_bytes(array)
            file = folder / f"{part}-{kind}-ubyte".replace("-idx", f"{spelling}idx")
            if compress:
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(content))
            else:
                file.write_bytes(content)


@contextmanager
def little_memory(limit: int = 1 << 20) -> Iterator[None]:
    """Fail if more than `limit` bytes are allocated at any time inside."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak} bytes were allocated"


@pytest.fixture(scope="session", name="idx_bytes")
def _idx_bytes() -> Callable[[np.ndarray], bytes]:
    return idx_bytes


@pytest.fixture(scope="session", name="write_mnist")
def _write_mnist() -> Callable[..., None]:
    return write_mnist


@pytest.fixture(scope="session", name="little_memory")
def _little_memory() -> Callable[..., object]:
    return little_memory


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property test."""
    return tmp_path_factory.mktemp("scratch")
