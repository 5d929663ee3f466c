"""Which activation? Plain ones, and products of two branches, all with as many parameters as GELU.

Expected (Shazeer 2020; Narang et al. 2021): gated below plain at equal parameters (SwiGLU 2.127, GELU 2.179,
ReLU 2.182 of T5's loss), no ranking among the gates; sigmoid and ELU worse (2.291, 2.270). A linear
feed-forward sublayer shows what the nonlinearity is worth at all.

    python -m experiments.activation                   two cores: minutes
    python -m experiments.activation full              a GPU
"""

from experiments import cli
from experiments.study_command import budgets, run_study
from transformer.config.activations import GELU, GLU, Linear, ReLU, Sigmoid, SiLU, SquaredReLU

ARMS = {
    "gelu": {"model.activation": GELU()},
    "relu": {"model.activation": ReLU()},
    "squared relu": {"model.activation": SquaredReLU()},
    "sigmoid": {"model.activation": Sigmoid()},
    "swiglu": {"model.activation": GLU(gate=SiLU())},
    "geglu": {"model.activation": GLU(gate=GELU())},
    "bilinear": {"model.activation": GLU(gate=Linear())},
    "linear": {"model.activation": Linear()},
}


def main() -> None:
    run_study("activation", ARMS, budgets("activation", match="parameters"), __doc__ or "")


if __name__ == "__main__":
    cli.main(main)
