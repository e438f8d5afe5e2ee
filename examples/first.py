"""The first answer: how long a step takes under a layout, and which layout is best."""

from meshwright import Job, plan, predict

job = Job("llama3-70b", "1024xh100-sxm", batch=512, tokens="15T")

mine = predict(job, tp=8, pp=4, interleave=4, zero=1)
print(
    f"{mine.step_time_s:.2f} s a step, MFU {mine.mfu:.1%},"
    f" {mine.memory_bytes['needed'] / 2**30:.1f} GiB"
)

best = plan(job).answer
print(
    f"best: tp {best.layout.tp}, pp {best.layout.pp}, dp {best.layout.dp}: {best.step_time_s:.2f} s"
    " a step"
)
