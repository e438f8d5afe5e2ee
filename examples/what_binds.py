"""The best layout for each degree of tensor parallelism, and what each waits for
(docs/images/what-binds.png).
"""

from pathlib import Path

from meshwright import Job, Space, cluster, model, plan
from meshwright.report import plots

job = Job(model("llama3-70b"), cluster("1024xh100-sxm"), batch=512)
degrees = (1, 2, 4, 8, 16)
found = [plan(job, Space(tp=(tp,)), top=1).best for tp in degrees]

names = [f"tp {tp}" for tp, best in zip(degrees, found, strict=True) if best]
figure = plots.layouts(
    [best for best in found if best],
    names,
    "llama3-70b on 1,024 H100: the best layout for each tp",
)
folder = Path("docs/images")
folder.mkdir(parents=True, exist_ok=True)
(folder / "what-binds.png").write_bytes(plots.image(figure, ".png"))

for name, best in zip(names, (best for best in found if best), strict=True):
    waits = sorted(
        ((s, cause) for cause, s in best.time_s.items() if cause != "compute"),
        reverse=True,
    )
    print(
        f"{name}: {best.step_time_s:.2f} s, waits most for {waits[0][1]} ({waits[0][0]:.2f} s)"
    )
