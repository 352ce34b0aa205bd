"""Order of an epoch: the samplers that a loader's arguments ask for, and the parts that ranks have of it."""

from fastload.order.agreement import Agreement
from fastload.order.arguments import OrderArguments, order_of, show_sharded
from fastload.order.buckets import BucketBatchSampler
from fastload.order.known import Draws, SamplerFacts, facts_of, is_stateful
from fastload.order.sampler import Sharded, ShardedBatchSampler, ShardedSampler, ShardSampler
from fastload.order.shard import Shard, checked_shard, process_rank
from fastload.order.splits import Split, advanced

__all__ = [
    "Agreement", "BucketBatchSampler", "Draws", "OrderArguments", "SamplerFacts", "Shard", "ShardSampler", "Sharded", "ShardedBatchSampler",
    "ShardedSampler", "Split", "advanced", "checked_shard", "facts_of", "is_stateful", "order_of", "process_rank", "show_sharded",
]  # fmt: skip
