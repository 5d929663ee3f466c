from experiments.bases import on_bases
from transformer.embeddings.embedding import Head
from transformer.study.claim import Claim

CLAIM = Claim(
    text="One matrix for embedding and head is better than two.",
    family="embeddings",
    source="Press and Wolf 2017, arXiv:1608.05859, table 2",
    published="Penn Treebank, word LSTM: test perplexity 78.4 untied, 75.? tied.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("tying", {"model.head": Head(tied=True)}, {"model.head": Head(tied=False)}),
)
