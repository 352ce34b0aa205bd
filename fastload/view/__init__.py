"""View: a page on this machine that shows a packed dataset and its transform's draws. Needs the extra
`view` (Starlette, uvicorn)."""
