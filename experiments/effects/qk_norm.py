"""Norms of queries and keys at a high learning rate (Wortsman et al. 2023)."""

from experiments.bases import MODERN, on_text
from transformer.mixers.attention.head_norms import QKNorm
from transformer.study.claim import Claim

HIGH = {"optimizer.learning_rate": 0.03}
NORM = {"model.mixer.parts": (QKNorm(),)}
ARMS, CONTRASTS = {}, {}
for BASE, OWN in {"plain": {}, "modern": MODERN}.items():
    ARMS |= {
        BASE: OWN,
        f"{BASE}, norm": {**OWN, **NORM},
        f"{BASE}, high": {**OWN, **HIGH},
        f"{BASE}, norm, high": {**OWN, **NORM, **HIGH},
    }
    GAIN = {f"{BASE}, norm, high": 1.0, f"{BASE}, high": -1.0}
    CONTRASTS |= {BASE: GAIN, f"{BASE}, beyond tuned": {**GAIN, f"{BASE}, norm": -1.0, BASE: 1.0}}
CLAIM = Claim(
    text="Norms of queries and keys keep a high learning rate from hurting.",
    family="attention",
    source="Wortsman et al. 2023, arXiv:2309.14322, section 3.1.1 and figure 1",
    published=(
        "With it 1.2B parameters train at a rate of .3; without it the rate at which training diverges falls as "
        "models grow."
    ),
    expected=dict.fromkeys(CONTRASTS, "better"),
    recipe=(
        "The high rate is .03, 7.5 times the best one of the plain base and 15 times that of the modern one; *beyond "
        "tuned* is what the norm gains there less what "
        "it gains at tuned rates. No z-loss, which all arms of the paper have."
    ),
    study=on_text("qk_norm", ARMS, contrasts=CONTRASTS),
    found=(
        "The high rate costs .50 and .48 without the norm, .22 with it in both bases. At tuned rates the norm gains "
        ".05 in the modern base and nothing in the plain one."
    ),
)
