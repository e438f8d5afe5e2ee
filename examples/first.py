"""The first answer: how long a step takes under a layout, and which layout is best."""

from meshwright import Job, Layout, cluster, model, plan, predict

job = Job(
    model("llama3-70b"), cluster("1024xh100-sxm"), batch=512, tokens=15e12
)

mine = predict(
    job,
    Layout(tp=8, pp=4, dp=32, interleave=4, schedule="interleaved", zero=1),
)
print(
    f"{mine.step_time_s:.2f} s a step, MFU {mine.mfu:.1%},"
    f" {mine.memory_bytes['needed'] / 2**30:.1f} GiB"
)

best = plan(job).best
print(
    f"best: tp {best.layout.tp}, pp {best.layout.pp}, dp {best.layout.dp}: {best.step_time_s:.2f} s"
    " a step"
)
