"""Published models: converts their folders to configs and parameters of this library, and back.

config, params = pretrained.load("folder")
pretrained.save("another", config, params)
"""

from transformer.pretrained.architecture import Architecture, Row
from transformer.pretrained.architectures import ARCHITECTURES
from transformer.pretrained.store import find, load, load_config, save

__all__ = ["ARCHITECTURES", "Architecture", "Row", "find", "load", "load_config", "save"]
