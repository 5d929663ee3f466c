"""Which activation? Plain ones, and products of two branches, all with as many parameters as GELU.

Expected (Shazeer 2020; Narang et al. 2021): gated below plain at equal parameters (SwiGLU 2.127, GELU 2.179,
ReLU 2.182 of T5's loss), no ranking among the gates; sigmoid and ELU worse (2.291, 2.270). A linear
feed-forward sublayer shows how much the nonlinearity helps at all.

    python -m experiments.activation                   two cores: 8 minutes
    python -m experiments.activation full              a GPU

Found with `--seeds 12 --learning-rates 1e-3 3e-3 1e-2` (2 layers, d 64, 300 steps; jax 0.10.2, two cores with other
work, 2026-11-24), nats per token, differences with intervals that hold together:

    gelu               2.3380 ± 0.0086
    relu               2.2993 ± 0.0147  -0.0387 [-0.0592, -0.0243]  better
    squared relu       2.2943 ± 0.0061  -0.0437 [-0.0530, -0.0343]  better
    sigmoid            2.5540 ± 0.0233  +0.2159 [+0.1827, +0.2554]  worse
    swiglu             2.3313 ± 0.0175  -0.0067 [-0.0259, +0.0124]  unresolved
    geglu              2.3153 ± 0.0142  -0.0228 [-0.0406, -0.0050]  better
    bilinear           2.3167 ± 0.0132  -0.0214 [-0.0363, -0.0065]  better
    linear             2.3684 ± 0.0088  +0.0304 [+0.0195, +0.0413]  worse
    gelu, other seeds  2.3296 ± 0.0089  -0.0085 [-0.0284, +0.0115]  unresolved

Signs reproduced for two of three gated ones and for sigmoid; SwiGLU is unresolved (a difference of 0.025 would have
been found). ReLU and its square are ahead of GELU, contrary to T5's order. 300 steps measure speed of learning.
"""

from experiments import cli
from experiments.study_command import budgets, run_study
from transformer.activations.activation import GELU, GLU, Linear, ReLU, Sigmoid, SiLU, SquaredReLU

ARMS = {
    "gelu": {"model.feed_forward.activation": GELU()},
    "relu": {"model.feed_forward.activation": ReLU()},
    "squared relu": {"model.feed_forward.activation": SquaredReLU()},
    "sigmoid": {"model.feed_forward.activation": Sigmoid()},
    "swiglu": {"model.feed_forward.activation": GLU(gate=SiLU())},
    "geglu": {"model.feed_forward.activation": GLU(gate=GELU())},
    "bilinear": {"model.feed_forward.activation": GLU(gate=Linear())},
    "linear": {"model.feed_forward.activation": Linear()},
}


def main() -> None:
    run_study("activation", ARMS, budgets("activation", match="parameters"), __doc__)


if __name__ == "__main__":
    cli.main(main)
