"""The architectures that come with the library."""

from transformer.pretrained.bamba import BAMBA
from transformer.pretrained.bart import BART
from transformer.pretrained.bert import BERT, BERT_CLASSIFIER
from transformer.pretrained.bloom import BLOOM
from transformer.pretrained.cohere import COHERE, COHERE2
from transformer.pretrained.deepseek_v3 import DEEPSEEK_V3
from transformer.pretrained.distilbert import DISTILBERT
from transformer.pretrained.falcon import FALCON
from transformer.pretrained.gemma import GEMMA
from transformer.pretrained.gemma2 import GEMMA2
from transformer.pretrained.gemma3 import GEMMA3
from transformer.pretrained.glm import GLM, GLM4
from transformer.pretrained.gpt2 import GPT2
from transformer.pretrained.gpt_bigcode import GPT_BIGCODE
from transformer.pretrained.gpt_neo import GPT_NEO
from transformer.pretrained.gpt_neox import GPT_NEOX
from transformer.pretrained.gpt_oss import GPT_OSS
from transformer.pretrained.gptj import GPTJ
from transformer.pretrained.helium import HELIUM
from transformer.pretrained.llama import LLAMA
from transformer.pretrained.mamba2 import MAMBA2
from transformer.pretrained.marian import MARIAN
from transformer.pretrained.mbart import MBART
from transformer.pretrained.mistral import MISTRAL
from transformer.pretrained.mixtral import MIXTRAL
from transformer.pretrained.modernbert import MODERNBERT
from transformer.pretrained.mpt import MPT
from transformer.pretrained.nemotron import NEMOTRON
from transformer.pretrained.olmo import OLMO, OLMO2
from transformer.pretrained.olmo_hybrid import OLMO_HYBRID
from transformer.pretrained.olmoe import OLMOE
from transformer.pretrained.opt import OPT
from transformer.pretrained.pegasus import PEGASUS
from transformer.pretrained.persimmon import PERSIMMON
from transformer.pretrained.phi import PHI
from transformer.pretrained.phi3 import PHI3
from transformer.pretrained.qwen2 import QWEN2
from transformer.pretrained.qwen3 import QWEN3
from transformer.pretrained.qwen3_moe import QWEN3_MOE
from transformer.pretrained.qwen3_next import QWEN3_NEXT
from transformer.pretrained.roberta import ROBERTA, ROBERTA_CLASSIFIER, XLM_ROBERTA, XLM_ROBERTA_CLASSIFIER
from transformer.pretrained.roformer import ROFORMER
from transformer.pretrained.smollm3 import SMOLLM3
from transformer.pretrained.stablelm import STABLELM
from transformer.pretrained.starcoder2 import STARCODER2
from transformer.pretrained.t5 import T5
from transformer.pretrained.vit import VIT
from transformer.pretrained.xlstm import XLSTM

ARCHITECTURES = (
    *(BERT, BERT_CLASSIFIER, ROBERTA, ROBERTA_CLASSIFIER, XLM_ROBERTA, XLM_ROBERTA_CLASSIFIER, DISTILBERT, ROFORMER),
    MODERNBERT,
    *(T5, BART, MBART, PEGASUS, MARIAN),
    *(GPT2, GPT_BIGCODE, GPT_NEO, GPTJ, GPT_NEOX, OPT, BLOOM, MPT, FALCON, PHI, STARCODER2, PERSIMMON),
    *(LLAMA, MISTRAL, MIXTRAL, QWEN2, QWEN3, QWEN3_MOE, GEMMA, GEMMA2, GEMMA3, OLMO, OLMO2, OLMOE, PHI3, STABLELM),
    *(NEMOTRON, COHERE, COHERE2, GLM, GLM4, HELIUM, SMOLLM3, GPT_OSS, DEEPSEEK_V3),
    *(MAMBA2, BAMBA, QWEN3_NEXT, OLMO_HYBRID, XLSTM),
    VIT,
)
