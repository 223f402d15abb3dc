"""On emulated microcontrollers: the same bits as here, and the bytes that were promised."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from c_programs import STRICT, exported, models, need, samples_for

import undivided

EXAMPLE = Path(__file__).parents[2] / "examples" / "cortex-m"
FIXED = (*STRICT, "-ffp-contract=off")


@dataclass(frozen=True)
class Device:
    """How a program is built for a device, and run without one."""

    compiler: str
    emulator: str
    machine: tuple[str, ...]
    flags: tuple[str, ...]
    linking: tuple[str, ...]

    def build(self, folder: Path, level: str) -> Path:
        """program.elf, the linker's program.map, and undivided.o on the way there."""
        need(self.compiler, self.emulator)
        program, part = folder / "program.elf", folder / "undivided.o"
        library = [flag for flag in self.linking if flag.endswith(".specs")]
        compiler = [self.compiler, *FIXED, level, *self.flags]
        source, check = str(folder / "undivided.c"), str(folder / "undivided_check.c")
        command = [*compiler, *self.linking, str(part), check, "-lm", "-o", str(program)]
        command.append(f"-Wl,-Map={folder / 'program.map'}")
        done = subprocess.run(
            [*compiler, *library, "-c", source, "-o", str(part)], capture_output=True, text=True
        )
        if done.returncode == 0:
            done = subprocess.run(command, capture_output=True, text=True)
        if re.search(r"cannot (read spec|find)", done.stderr):
            pytest.skip(f"the C library of {self.compiler} is not installed")
        assert done.returncode == 0, done.stderr
        return program

    def run(self, program: Path) -> str:
        command = [self.emulator, *self.machine, "-nographic", "-monitor", "none"]
        command += ["-serial", "none", "-semihosting-config", "enable=on,target=native"]
        command += ["-kernel", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr  # where the emulator's console writes

    @property
    def size(self) -> str:
        return self.compiler.removesuffix("gcc") + "size"


ARM = ("--specs=rdimon.specs", "-nostartfiles", f"-T{EXAMPLE}/mps2.ld", f"{EXAMPLE}/start.c")
DEVICES = {
    "cortex-m4": Device(
        "arm-none-eabi-gcc",
        "qemu-system-arm",
        ("-M", "mps2-an386"),
        ("-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
        ARM,
    ),
    "cortex-m7": Device(
        "arm-none-eabi-gcc",
        "qemu-system-arm",
        ("-M", "mps2-an500"),
        ("-mthumb", "-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
        ARM,
    ),
    "rv32": Device(
        "riscv64-unknown-elf-gcc",
        "qemu-system-riscv32",
        ("-M", "virt", "-bios", "none"),
        ("-march=rv32imac", "-mabi=ilp32"),
        (
            "--specs=picolibc.specs",
            "--oslib=semihost",
            "--crt0=hosted",
            "-Wl,--defsym=__flash=0x80000000,--defsym=__flash_size=0x400000",
            "-Wl,--defsym=__ram=0x80400000,--defsym=__ram_size=0x400000",
        ),
    ),
}


def printed(folder: Path, name: str) -> undivided.export.Exported:
    (model,) = models([name])
    samples = samples_for(model, 20)
    if model.plan.input.vocabulary is not None:
        samples = samples.astype(np.int32)
    return exported(model, folder, check=samples)


def answer_here(folder: Path) -> str:
    need("gcc")
    sources = [str(folder / f"undivided{part}.c") for part in ("", "_check")]
    subprocess.run(["gcc", *FIXED, "-O1", *sources, "-lm", "-o", str(folder / "here")], check=True)
    return subprocess.run([str(folder / "here")], capture_output=True, text=True).stdout


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["everything", "gated", "words", "pictures"])
def test_devices_give_the_same_bits(tmp_path, device, name):
    printed(tmp_path, name)
    here = answer_here(tmp_path)
    assert here.startswith("20 samples, bits ")
    for level in ("-O0", "-O2", "-Os"):
        program = DEVICES[device].build(tmp_path, level)
        assert DEVICES[device].run(program) == here


@pytest.mark.parametrize("device", DEVICES)
def test_bytes_are_those_of_size_and_of_the_linker(tmp_path, device):
    written = printed(tmp_path, "mnist-attention")
    built = DEVICES[device]
    built.build(tmp_path, "-Os")
    linker, part = (tmp_path / "program.map").read_text(), tmp_path / "undivided.o"
    assert in_the_map(linker, ".bss", part) == written.arena_bytes
    assert in_the_map(linker, ".rodata", part) == written.weight_bytes
    assert in_the_map(linker, ".data", part) == 0

    done = subprocess.run([built.size, "-A", str(part)], capture_output=True, text=True, check=True)
    sizes = {name: int(size) for name, size in re.findall(r"^(\S+) +(\d+) ", done.stdout, re.M)}
    assert sizes[".bss"] == written.arena_bytes
    assert sizes[".rodata"] == written.weight_bytes
    assert sizes[".data"] == 0
    header = (tmp_path / "undivided.h").read_text()
    assert f"_ARENA_BYTES {sizes['.bss']} " in header
    assert f"_WEIGHT_BYTES {sizes['.rodata']} " in header


def in_the_map(linker_map: str, section: str, part: Path) -> int:
    """How many bytes of a section come from an object file, as the linker's map says."""
    placed = linker_map[linker_map.index("Linker script and memory map") :]
    sizes = re.findall(
        rf"^ {re.escape(section)}\s+0x[0-9a-f]+\s+0x([0-9a-f]+) {re.escape(str(part))}$",
        placed,
        re.M,
    )
    return sum(int(size, 16) for size in sizes)
