"""The delta rule and linear attention on associative recall (Yang et al. 2024)."""

from experiments.bases import RECALL, on_task, recurrent
from transformer.data.tasks.recall import AssociativeRecall
from transformer.mixers.recurrent.delta import DeltaNet
from transformer.mixers.recurrent.linear_attention import LinearAttention
from transformer.study.claim import Claim

CLAIM = Claim(
    text="With the delta rule a state recalls what sums do not.",
    family="recurrences",
    source="Yang S. et al. 2024, arXiv:2406.06484",
    published="MQAR at 512 tokens and 64 pairs: DeltaNet has accuracy 1 at every width (from memory).",
    expected={"deltanet": "better"},
    recipe="4 pairs in 24 tokens, width 64. Both have a short convolution and no positions.",
    study=on_task(
        "delta_recall",
        AssociativeRecall(alphabet=32, sequence_length=24),
        {"linear": recurrent(LinearAttention(convolution=4)), "deltanet": recurrent(DeltaNet())},
        RECALL,
        match="parameters",
    ),
)
