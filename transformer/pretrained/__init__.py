"""Published models: converts their folders to configs and parameters of this library, and back.

config, params = pretrained.load("folder")
pretrained.save("another", config, params)
config, params = pretrained.with_pairs(config, params, interleaved=True)   # rotary features in the other order
"""

from transformer.pretrained.architecture import Architecture, Row
from transformer.pretrained.architectures import ARCHITECTURES
from transformer.pretrained.rotary import with_pairs
from transformer.pretrained.store import find, load, load_config, save

__all__ = ["ARCHITECTURES", "Architecture", "Row", "find", "load", "load_config", "save", "with_pairs"]
