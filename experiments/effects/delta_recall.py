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
    recipe=(
        "12 pairs of 32 keys in 60 tokens with zeros as filler, width 32 and one head: more keys than a sum can tell "
        "apart. Both have a short convolution and no positions. Pairs, steps and rates were chosen by runs of two of "
        "the seeds."
    ),
    study=on_task(
        "delta_recall",
        AssociativeRecall(alphabet=64, sequence_length=60, pairs=12, filler="zeros"),
        {
            "linear": {
                **recurrent(LinearAttention(num_heads=1, convolution=4)),
                "optimizer.learning_rate": (3e-3, 1e-2, 3e-2, 1e-1),
            },
            "deltanet": recurrent(DeltaNet(num_heads=1)),
        },
        {"model.d_model": 32, "model.feed_forward.d_ff": 128, "steps": 1200},
        learning_rates=(3e-3, 1e-2),
        metric="accuracy",
    ),
    found=(
        "DeltaNet recalls .99 and more in all runs at both rates, in a state of the same size, where the best run of "
        "linear attention recalls .78."
    ),
)
