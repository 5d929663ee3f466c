"""What a run ran on; in the same environment its numbers are reproducible bit for bit."""

import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

import jax


def environment() -> dict[str, Any]:
    """Versions, devices and processor, as JSON."""
    packages = ("transformer", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "devices": [device.device_kind for device in jax.devices()],
        "platform": platform.platform(),
        "cores": len(cores()),
        "processor": processor(),
    }


def numeric(here: dict[str, Any]) -> dict[str, Any]:
    """What of an environment numbers depend on: of processors only where they compute."""
    on_cpu = "cpu" in here.get("devices", ())
    names = ("packages", "devices", *(("processor", "cores") if on_cpu else ()))
    return {name: here[name] for name in names if name in here}


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def processor() -> str:
    """The name of the processor's model; empty where the system does not say."""
    about = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", about.read_text()) if about.exists() else None
    return found[1] if found else platform.processor()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
