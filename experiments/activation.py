"""Which activation? Plain ones, and products of two branches, all with as many parameters as GELU.

Expected (Shazeer 2020; Narang et al. 2021): gated below plain at equal parameters (SwiGLU 2.127, GELU 2.179,
ReLU 2.182 of T5's loss), no ranking among the gates; sigmoid and ELU worse (2.291, 2.270). A linear
feed-forward sublayer shows how much the nonlinearity helps at all.

    python -m experiments.activation                   two cores: 5 minutes
    python -m experiments.activation --seeds 8         6 minutes
    python -m experiments.activation full              a GPU

Found with `--seeds 8` (2 layers, d 64, 300 steps; jax 0.10.2, two cores of an AMD EPYC, 2026-11-29), nats per token,
differences with intervals that hold together:

    gelu               2.3767 ± 0.0066
    relu               2.3392 ± 0.0099  -0.0374 [-0.0524, -0.0225]  better
    squared relu       2.3263 ± 0.0132  -0.0504 [-0.0664, -0.0344]  better
    sigmoid            2.5748 ± 0.0140  +0.1981 [+0.1761, +0.2202]  worse
    swiglu             2.3536 ± 0.0186  -0.0231 [-0.0505, +0.0043]  unresolved
    geglu              2.3462 ± 0.0123  -0.0305 [-0.0506, -0.0103]  better
    bilinear           2.3522 ± 0.0158  -0.0245 [-0.0469, -0.0020]  better
    linear             2.4064 ± 0.0097  +0.0297 [+0.0178, +0.0416]  worse

Signs reproduced for two of three gated ones and for sigmoid; SwiGLU is unresolved here, and better with more steps
(`experiments/effects/swiglu.py`). ReLU and its square are ahead of GELU, contrary to T5's order. 300 steps measure
speed of learning. Of another text and order of rows, with twelve seeds, all verdicts were the same.
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
