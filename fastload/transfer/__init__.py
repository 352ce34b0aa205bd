"""Transfer: copies packed datasets between a folder and a URL."""

from fastload.transfer.pull import PullSummary, pull
from fastload.transfer.push import PushSummary, push

__all__ = ["PullSummary", "PushSummary", "pull", "push"]
