"""Remote data: packed datasets in a bucket, read through a cache on the local disk. Needs the extra
`remote` (obstore)."""
