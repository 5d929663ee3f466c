"""The architectures that come with the library."""

from transformer.pretrained.bamba import BAMBA
from transformer.pretrained.bart import BART
from transformer.pretrained.bert import BERT, BERT_CLASSIFIER
from transformer.pretrained.bloom import BLOOM
from transformer.pretrained.gemma2 import GEMMA2
from transformer.pretrained.gpt2 import GPT2
from transformer.pretrained.gpt_neox import GPT_NEOX
from transformer.pretrained.llama import LLAMA
from transformer.pretrained.mamba2 import MAMBA2
from transformer.pretrained.marian import MARIAN
from transformer.pretrained.mixtral import MIXTRAL
from transformer.pretrained.olmo_hybrid import OLMO_HYBRID
from transformer.pretrained.qwen3 import QWEN3
from transformer.pretrained.qwen3_next import QWEN3_NEXT
from transformer.pretrained.t5 import T5
from transformer.pretrained.vit import VIT
from transformer.pretrained.xlstm import XLSTM

ARCHITECTURES = (
    *(GPT2, BERT, BERT_CLASSIFIER, T5, BART, MARIAN, LLAMA, GPT_NEOX, BLOOM, GEMMA2, QWEN3, MIXTRAL, VIT),
    *(MAMBA2, BAMBA, QWEN3_NEXT, OLMO_HYBRID, XLSTM),
)
