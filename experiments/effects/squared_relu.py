from experiments.bases import on_bases
from transformer.activations.activation import GELU, SquaredReLU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Squared ReLU is better than GELU.",
    family="activations",
    source="So et al. 2021, arXiv:2109.08668, section 4",
    published=(
        "The most important of the seven changes of Primer beside the convolution; with it the same quality at a "
        "quarter to a third less compute."
    ),
    expected={"plain": "better", "modern": "better"},
    study=on_bases(
        "squared_relu",
        {"model.feed_forward": FeedForward(activation=SquaredReLU(), d_ff=256)},
        {"model.feed_forward": FeedForward(activation=GELU(), d_ff=256)},
    ),
)
