# Written by `python -m transformer.testing.stubs`.
from transformer.embeddings.embedding import Embedding as Embedding
from transformer.embeddings.embedding import Head as Head
from transformer.embeddings.embedding import HeadTransform as HeadTransform
from transformer.embeddings.head_transforms import DenseTransform as DenseTransform
from transformer.embeddings.patches import resize_positions as resize_positions
