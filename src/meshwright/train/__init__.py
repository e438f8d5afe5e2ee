"""Run the plan: a job and its layout carried out on PyTorch's distributed engine. Needs torch.

To be read in this order. What a step is: `model` (with `attention`, `moe`, `loss`), `parallel` and
`tensor_parallel` spread it, `pipeline` orders its microbatches, `gradients` and `optimizer` update
it, `loop` is all of that on a rank. What a run is: `rules` refuses what cannot run, `launch` starts
the ranks, `session` is one of them, `feed` gives it data, `checkpoint` keeps it, `watchdog` looks
after it, `run` is the whole. Instruments: `record`, `profile`, `traffic`, `oracle`.
"""
