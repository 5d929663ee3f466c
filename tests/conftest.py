"""Settings of every test: strict dtypes, two CPU devices, compiled programs kept on disk, the same examples always."""

import gc
import os
from pathlib import Path

import hypothesis
import jax
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


def pytest_addoption(parser):
    parser.addoption("--every", type=int, default=1, help="run every so many-th test alone, of all files")


def pytest_collection_modifyitems(config, items):
    items[:] = items[:: config.getoption("every")]


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_file():
    """Thousands of compiled programs would fill the memory, and no file needs those of another."""
    yield
    jax.clear_caches()
