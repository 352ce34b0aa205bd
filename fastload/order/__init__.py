"""Order of an epoch: the samplers that a loader's arguments ask for."""

from fastload.order.arguments import OrderArguments, order_of

__all__ = ["OrderArguments", "order_of"]
