"""Mixtures: samples of several datasets by weights, in an order that is a pure function of (seed, epoch)."""

from fastload.mixture.dataset import Mixture
from fastload.mixture.order import MixtureOrder, shares

__all__ = ["Mixture", "MixtureOrder", "shares"]
