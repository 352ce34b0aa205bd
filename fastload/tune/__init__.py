"""Tune: short interleaved trials of a loader's settings on this machine, and the choice that they allow.

`choose` decides from measurements alone, `rounds` takes them, `settings` says what is tried, `dataset` and
`script` run the trials of a packed dataset and of a program's first loader, `report` shows the result. The
first two import no torch.
"""
