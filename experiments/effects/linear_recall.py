"""Linear and softmax attention on associative recall (Arora et al. 2023)."""

from experiments.bases import on_task, recurrent
from transformer.data.tasks.recall import AssociativeRecall
from transformer.mixers.attention.short_convolution import ShortConvolution
from transformer.mixers.recurrent.linear_attention import LinearAttention
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Linear attention does not recall pairs that softmax attention does.",
    family="attention",
    source="Arora, Eyuboglu et al. 2023 (Zoology), arXiv:2312.04927, theorem 4.4 and figure 2",
    published=(
        "MQAR: attention has accuracy 1.00 at every width, 64 to 512; gated convolutions need a width that grows "
        "with the length (as reported by others)."
    ),
    expected={"linear": "worse"},
    recipe=(
        "8 pairs in 40 tokens, width 32, four heads, a short convolution in both, and networks between the layers, "
        "which the paper leaves out. Linear attention in place of gated convolutions."
    ),
    study=on_task(
        "linear_recall",
        AssociativeRecall(alphabet=32, sequence_length=40, pairs=8),
        {"softmax": {"model.mixer.parts": (ShortConvolution(),)}, "linear": recurrent(LinearAttention(convolution=4))},
        {"model.d_model": 32, "model.feed_forward.d_ff": 128, "steps": 1500},
        match="parameters",
        learning_rates=(1e-3, 3e-3, 1e-2, 3e-2),
        fails_above=0.5,
    ),
    found=(
        "A run that ends above .5 nats, where a guess has 2.8, has failed. Of eight runs none does with softmax "
        "attention up to .01. With linear attention eight do at .001, three at .003, two at .01 and one at .03, the "
        "highest rate, where six recall all: it lacks a sure way there here, not places in its state. With 4 pairs at "
        "width 64 and rates up to .003 it recalled .95, told as worse."
    ),
)
