"""Packing on a Ray cluster: each shard of N consecutive samples of the order is a task, which any node can do
alone.

NOTE [ cluster: what is durable when ]
The order of the samples is cut after every N-th. That decides the samples of each shard, the name of its file
and the keys of its samples. So the bytes of a shard do not depend on its writer, nor on the fate of the
others. OUT is a folder that all nodes share, or a URL.
1. The driver writes progress.json first: the options, and a token of this run. A task publishes only where it
   finds its own token, so that a driver that was replaced by another one stops.
2. A task makes its shard under a temporary name, or in a folder of its node for a URL; then it publishes the
   shard, the shard's section of the sidecar, and last the done-record that describes both, each by rename or
   in one upload.
3. A task whose done-record is there, whose shard has the size (and at a URL the ETag) that it names, and
   whose samples are still those that it logged, is done. So tasks may be repeated at any time, by Ray or by a
   resume; two at once write the same bytes.
4. When all are done, the driver writes the sidecar from the sections, and then manifest.json: the commit. The
   done-records, the sections, temporary files and progress.json are removed after it.
The driver keeps nothing elsewhere: a resume may run on another node.
"""
