"""Settings of every test: strict dtypes, two CPU devices, compiled programs kept on disk, the same examples always."""

import os
from pathlib import Path

import hypothesis
import jax
import pytest

# The programs are many, small, and run a few times: compiled in little time, which XLA reads when it starts.
QUICK = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
if jax.__version_info__ < (0, 11):  # later ones have no other way to write a kernel, and end at a flag they do not know
    QUICK.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICK])

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "transformer" / "tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

hypothesis.settings.register_profile("tests", derandomize=True, deadline=None, max_examples=20, database=None)
hypothesis.settings.load_profile("tests")


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_file():
    """Thousands of compiled programs would fill the memory, and no file needs those of another."""
    yield
    jax.clear_caches()
