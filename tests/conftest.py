"""Settings of every test: strict dtypes, two CPU devices, compiled programs kept on disk, the same examples always."""

from pathlib import Path

import hypothesis
import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "transformer" / "tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

hypothesis.settings.register_profile("tests", derandomize=True, deadline=None, max_examples=20, database=None)
hypothesis.settings.load_profile("tests")
