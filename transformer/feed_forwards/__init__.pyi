# Written by `python -m transformer.testing.stubs`.
from transformer.feed_forwards.canon import CanonFeedForward as CanonFeedForward
from transformer.feed_forwards.experts import ExpertChoice as ExpertChoice
from transformer.feed_forwards.experts import Experts as Experts
from transformer.feed_forwards.experts import SigmoidTopK as SigmoidTopK
from transformer.feed_forwards.experts import TopKExperts as TopKExperts
from transformer.feed_forwards.experts import TopKProbabilities as TopKProbabilities
from transformer.feed_forwards.feed_forward import FeedForward as FeedForward
