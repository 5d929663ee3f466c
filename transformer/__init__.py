"""A laboratory for transformers: every choice is a value, every comparison an experiment.

import transformer as T

config = T.preset("nanogpt-cpu").replace({"model.norm": T.RMSNorm()})
model = T.LanguageModel(config.model.replace(vocab_size=65), key=jax.random.key(0))
params, apply = T.split(model)

Every public name is here, and is loaded when it is first used; `dir(T)` shows those of a day, and the rooms
(`T.norms`, `T.mixers`, …) what each family has.
"""

from transformer.names import room

__getattr__, __dir__ = room(__name__)
