"""Run the plan: a job and its layout carried out on PyTorch's distributed engine. Needs torch;
nothing outside imports this room.

`job` reads the description, `rules` refuses what cannot run here, `launch` starts the ranks, `loop`
trains: `model` is the decoder, `grid` and `parallel` spread it, `pipeline` orders its microbatches,
`data` feeds it.
"""
