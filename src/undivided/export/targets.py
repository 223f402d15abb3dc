"""Microcontrollers, and what they have room for."""

from __future__ import annotations

from dataclasses import dataclass

from undivided.errors import ArgumentError, suggest

__all__ = ["TARGETS", "Target", "target_named"]

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Target:
    """RAM that one array can lie in, and flash, in bytes."""

    name: str
    what: str
    ram: int
    flash: int


# Sizes are from the makers' datasheets; where flash is a chip of its own, that of the usual board.
# Bootloaders, radio stacks and an operating system take their share of both before a model does.
TARGETS = (
    # ESP32-S3 Series Datasheet, 1.1: 512 KB of SRAM; ESP32-S3-WROOM-1-N8: 8 MB of flash.
    Target("esp32s3", "ESP32-S3, Xtensa LX7 with FPU", 512 * KIB, 8 * MIB),
    # ESP32-C3 Series Datasheet: 400 KB of SRAM, 16 KB of it cache; 4 MB of flash in the package.
    Target("esp32c3", "ESP32-C3, RV32IMC without FPU", 384 * KIB, 4 * MIB),
    # nRF52840 Product Specification, 1: 256 KB of RAM, 1 MB of flash.
    Target("cortex-m4", "nRF52840, Cortex-M4 with FPU", 256 * KIB, 1 * MIB),
    # STM32H743 datasheet (DS12110), 3.3: 2 MB of flash; of 1 MB of RAM the AXI SRAM, 512 KB, is
    # the largest stretch.
    Target("cortex-m7", "STM32H743, Cortex-M7 with FPU", 512 * KIB, 2 * MIB),
    # RP2040 Datasheet, 2.6: 264 KB of SRAM; Raspberry Pi Pico Datasheet: 2 MB of flash.
    Target("rp2040", "RP2040, Cortex-M0+ without FPU", 264 * KIB, 2 * MIB),
    # RP2350 Datasheet, 4.2: 520 KB of SRAM; Raspberry Pi Pico 2 Datasheet: 4 MB of flash.
    Target("rp2350", "RP2350, Cortex-M33 with FPU", 520 * KIB, 4 * MIB),
    # STM32F103x8 datasheet (DS5319): 20 KB of SRAM, 64 KB of flash.
    Target("cortex-m3", "STM32F103C8, Cortex-M3 without FPU", 20 * KIB, 64 * KIB),
)


def target_named(name: str) -> Target:
    for target in TARGETS:
        if target.name == name:
            return target
    known = [target.name for target in TARGETS]
    raise ArgumentError(
        f"There is no target {name!r}.{suggest(name, known)} The targets are {', '.join(known)}.",
        argument="target",
    )
