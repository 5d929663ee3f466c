"""Which activation? Plain ones, and products of two branches, all with as many parameters as GELU.

Expected (Shazeer 2020; Narang et al. 2021): gated below plain at equal parameters (SwiGLU 2.127, GELU 2.179,
ReLU 2.182 of T5's loss), no ranking among the gates; sigmoid and ELU worse (2.291, 2.270). A linear
feed-forward sublayer shows how much the nonlinearity helps at all.

    python -m experiments.activation                   two cores: 6 minutes
    python -m experiments.activation full              a GPU

Found with the first command (2 layers, d 64, 300 steps, 4 estimation seeds of 6, learning rate chosen from
1e-3, 3e-3, 1e-2 on the other 2; jax 0.10.2, two cores with other work, 2026-11-21), nats per token:

    gelu          2.2943 ± 0.0254
    relu          2.2493 ± 0.0218   -0.0451 ± 0.0150   better
    squared relu  2.2460 ± 0.0240   -0.0483 ± 0.0131   better
    sigmoid       2.4998 ± 0.0564   +0.2054 ± 0.0614   worse
    swiglu        2.2866 ± 0.0659   -0.0077 ± 0.0510   unresolved
    geglu         2.2591 ± 0.0600   -0.0353 ± 0.0428   unresolved
    bilinear      2.2616 ± 0.0284   -0.0327 ± 0.0251   unresolved
    linear        2.3252 ± 0.0240   +0.0309 ± 0.0182   unresolved

Sign reproduced for sigmoid. Gated ones are ahead of GELU in the mean, but unresolved; ReLU and its square
tolerate the larger learning rate. 300 steps measure speed of learning: even a linear sublayer is close.
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
    run_study("activation", ARMS, budgets("activation", match="parameters"), __doc__ or "")


if __name__ == "__main__":
    cli.main(main)
