"""How long `import undivided` takes, and how much it adds to an environment with NumPy.

    python benchmarks/startup.py                     # the time
    python benchmarks/startup.py --size              # the bytes, of the installation at hand
    python benchmarks/startup.py --size --wheel dist/undivided-*.whl

Time: whole processes by turns, a bare interpreter, one that imports NumPy and one that imports
undivided; medians of `--runs` (20). What the bare one takes is shown apart and left out of the
others. The bar is 0.15 s, NumPy's share included.

Size: every file of undivided and of what it depends on, however indirectly, less NumPy and what
NumPy depends on. The bar is 25 MB. Dependencies are read from the records of this environment;
undivided itself too, or, with `--wheel`, from a place into which that wheel is installed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

__all__ = ["main", "measure_size", "measure_time"]

SECONDS_BAR = 0.15
BYTES_BAR = 25e6
PROGRAMS = {"bare": "pass", "numpy": "import numpy", "undivided": "import undivided"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="startup.py",
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=20, metavar="N")
    parser.add_argument("--size", action="store_true", help="bytes in place of seconds")
    parser.add_argument("--wheel", metavar="FILE", help="with --size: undivided's wheel")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.runs < 1 or (options.wheel and not options.size):
        parser.error("--runs must be at least 1, and --wheel goes with --size")
    try:
        result = measure_size(options.wheel) if options.size else measure_time(options.runs)
    except (LookupError, OSError, subprocess.CalledProcessError) as error:
        print(f"startup.py: {error}", file=sys.stderr)
        return 1
    text = size_text if options.size else time_text
    print(json.dumps(result, indent=2) if options.json else text(result))
    return 0


def measure_time(runs: int) -> dict[str, Any]:
    """Medians of whole processes, taken by turns; the first turn only fills the caches."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for turn in range(runs + 1):
        for name, program in PROGRAMS.items():
            started = perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            if turn > 0:
                seconds[name].append(perf_counter() - started)
    bare, numpy, undivided = (median(seconds[name]) for name in PROGRAMS)
    modules = {name: _modules_after(program) for name, program in PROGRAMS.items()}
    own = sum(name.partition(".")[0] == "undivided" for name in modules["undivided"])
    return {
        "runs": runs,
        "bare_seconds": bare,
        "import_seconds": undivided - bare,
        "numpy_seconds": numpy - bare,
        "modules": len(modules["undivided"]),
        "modules_of_undivided": own,
        "modules_of_numpy_alone": len(modules["numpy"]),
        "bar": SECONDS_BAR,
        "holds": undivided - bare <= SECONDS_BAR,
    }


def _modules_after(program: str) -> list[str]:
    listing = f"{program}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", listing], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split()


def time_text(result: dict[str, Any]) -> str:
    own = result["import_seconds"] - result["numpy_seconds"]
    return "\n".join(
        [
            f"import undivided      {result['import_seconds']:.3f} s, median of {result['runs']} "
            f"fresh processes; bar {result['bar']} s: {_verdict(result)}",
            f"  of which NumPy      {result['numpy_seconds']:.3f} s",
            f"  of which the rest   {own:.3f} s",
            f"bare interpreter      {result['bare_seconds']:.3f} s, not counted above",
            f"modules loaded        {result['modules']}, {result['modules_of_undivided']} of them "
            f"undivided's; {result['modules_of_numpy_alone']} with NumPy alone",
        ]
    )


def measure_size(wheel: str | None) -> dict[str, Any]:
    """Bytes of undivided and of each dependency that NumPy does not bring anyway."""
    there = _closure("numpy")
    if wheel is None:
        sizes = {"undivided": _installed_bytes(_found("undivided"))}
        needed = _closure("undivided")
    else:
        with tempfile.TemporaryDirectory() as folder:
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
            subprocess.run([*install, "--target", folder, wheel], check=True)
            sizes = {"undivided": sum(f.stat().st_size for f in _files_below(folder))}
            (record,) = Path(folder).glob("undivided-*.dist-info")
            needed = _closure_of(Distribution.at(record))
    for name in sorted(needed - there - {"undivided"}):
        sizes[name] = _installed_bytes(_found(name))
    total = sum(sizes.values())
    return {
        "bytes": total,
        "packages": sizes,
        "bar": BYTES_BAR,
        "holds": total <= BYTES_BAR,
    }


def _files_below(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def _found(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise LookupError(
            f"{name} is not installed in this environment. Install it, or name undivided's wheel "
            "by --wheel and have its dependencies installed."
        ) from None


def _installed_bytes(found: Distribution) -> int:
    """The files on the package's record, compiled ones included, that are there."""
    if "editable" in (found.read_text("direct_url.json") or ""):
        raise LookupError(
            f"{found.name} is installed as editable, so its files are not on its record. "
            "Name a wheel by --wheel."
        )
    paths = (Path(str(found.locate_file(file))) for file in found.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def _closure(name: str) -> set[str]:
    """A package and all that it needs here."""
    return {_normal(name)} | _closure_of(_found(name))


def _closure_of(found: Distribution) -> set[str]:
    """All that a package needs here; what another system or an extra needs is not installed."""
    needed: set[str] = set()
    waiting = [found]
    while waiting:
        for requirement in waiting.pop().requires or ():
            text, _, condition = requirement.partition(";")
            match = re.match(r"[A-Za-z0-9._-]+", text.strip())
            if match is None or "extra" in condition or _normal(match[0]) in needed:
                continue
            try:
                waiting.append(distribution(match[0]))
            except PackageNotFoundError:
                if not condition:
                    raise LookupError(f"{match[0]}, which is needed, is not installed.") from None
                continue
            needed.add(_normal(match[0]))
    return needed


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def size_text(result: dict[str, Any]) -> str:
    packages = sorted(result["packages"].items(), key=lambda item: -item[1])
    return "\n".join(
        [
            f"undivided adds {result['bytes'] / 1e6:.1f} MB to an environment with NumPy; bar "
            f"{result['bar'] / 1e6:.0f} MB: {_verdict(result)}",
            *(f"  {name:20}{size / 1e6:6.1f} MB" for name, size in packages),
        ]
    )


def _verdict(result: dict[str, Any]) -> str:
    return "holds" if result["holds"] else "DOES NOT HOLD"


if __name__ == "__main__":
    sys.exit(main())
