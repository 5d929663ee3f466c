from transformer.names import room

__getattr__, __dir__ = room(__name__)
