"""The delta rule and linear attention on associative recall (Yang et al. 2024)."""

from experiments.bases import on_task, recurrent
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
    recipe="8 pairs in 40 tokens, width 32. Both have a short convolution and no positions.",
    study=on_task(
        "delta_recall",
        AssociativeRecall(alphabet=32, sequence_length=40, pairs=8),
        {"linear": recurrent(LinearAttention(convolution=4)), "deltanet": recurrent(DeltaNet())},
        {"model.d_model": 32, "model.feed_forward.d_ff": 128, "steps": 1500},
        match="parameters",
        learning_rates=(1e-3, 3e-3, 1e-2),
    ),
    found=(
        "DeltaNet recalls nearly all at .003, linear attention at .01 in some runs and in others not. With 4 pairs, "
        "width 64 and rates up to .003 it was told ahead by .05, where linear attention took the highest rate."
    ),
)
