"""Settings of every test: strict dtypes, two CPU devices, compiled programs kept on disk, the same examples always."""

import collections
import gc
import os
from pathlib import Path

import hypothesis
import jax
import psutil
import pytest

from transformer.testing.pool import flags
from transformer.testing.subject import QUICK

# Read with the first program, here and in the processes that tests start.
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags(QUICK)])

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "transformer" / "tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

# Programs are many small objects that live long: looking through them for cycles took a tenth of the time.
gc.freeze()
gc.set_threshold(20_000)

hypothesis.settings.register_profile("tests", derandomize=True, deadline=None, max_examples=20, database=None)
hypothesis.settings.load_profile("tests")


LONG = frozenset(Path(__file__).with_name("long.txt").read_text().split())
"""Tests that take seconds. `make test` runs the first of their choices, where they have choices; `make release` all. Of
those listed with `[*]` the first choice takes seconds too, and `make test` runs none."""


def pytest_addoption(parser):
    parser.addoption("--every", type=int, default=1, help="run every so many-th test alone, of all files")
    parser.addoption("--tests", choices=("short", "long"), help="long: what long.txt lists, or is marked release")
    parser.addoption("--part", default="1/1", help="of what would be run, the K-th of N parts, K/N")
    parser.addoption(
        "--list-long", type=float, metavar="SECONDS", help="list anew, of what was run, what would save so much"
    )


def pytest_collection_modifyitems(config, items):
    items[:] = items[:: config.getoption("every")]
    if tests := config.getoption("tests"):
        kept = set({"short": short, "long": long}[tests](items))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    first, parts = map(int, config.getoption("part").split("/"))
    items[:] = items[first - 1 :: parts]


def short(items):
    """What is not listed, and the first choice of what is without `[*]`."""
    first = {function(item.nodeid): item for item in reversed(items) if hasattr(item, "callspec")}
    first = {test: item for test, item in first.items() if f"{test}[*]" not in LONG}
    return [item for item in items if not listed(item) or first.get(function(item.nodeid)) is item]


def long(items):
    """What is listed, and what has processes of its own."""
    return [item for item in items if listed(item) or item.get_closest_marker("release")]


def listed(item):
    """Whether a test is one of those that take seconds."""
    return not LONG.isdisjoint({function(item.nodeid), f"{function(item.nodeid)}[*]"})


def function(nodeid):
    """The name of a test without its choice."""
    return nodeid.partition("[")[0]


def pytest_terminal_summary(terminalreporter, config):
    least = config.getoption("list_long")
    if least is None:
        return
    seconds: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports(""):
        seconds[function(report.nodeid)][report.nodeid] += report.duration
    named = {name for name in LONG if name.removesuffix("[*]") not in seconds}
    for test, taken in seconds.items():
        one = taken.total() / len(taken)
        if test not in taken and one >= least:
            named.add(f"{test}[*]")
        elif taken.total() - one * (test not in taken) >= least:
            named.add(test)
    named = sorted(named)
    Path(__file__).with_name("long.txt").write_text("".join(f"{test}\n" for test in named))


@pytest.fixture(autouse=True, scope="module")
def room_for_programs():
    """Small programs, such as those of initial values, serve many files; all of all files would fill the memory."""
    yield
    if psutil.Process().memory_info().rss > 3 * 2**30:
        jax.clear_caches()
