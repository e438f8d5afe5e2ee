"""The best layout for each degree of tensor parallelism, and what each waits for
(docs/images/what-binds.png).
"""

from pathlib import Path

from meshwright import Job, plan
from meshwright.report import plots

job = Job("llama3-70b", "1024xh100-sxm", batch=512)
best = {tp: plan(job, tp=tp, top=1).best for tp in (1, 2, 4, 8, 16)}
fitting = {f"tp {tp}": p for tp, p in best.items() if p}

figure = plots.layouts(
    list(fitting.values()),
    list(fitting),
    "llama3-70b on 1,024 H100: the best layout for each tp",
)
lines: list[str] = []
for name, p in fitting.items():
    waits = sorted(
        ((s, cause) for cause, s in p.time_s.items() if cause != "compute"),
        reverse=True,
    )
    lines.append(
        f"{name}: {p.step_time_s:.2f} s, waits most for {waits[0][1]} ({waits[0][0]:.2f} s)"
    )
numbers = "\n".join(lines)
print(numbers)

folder = Path("docs/images")
folder.mkdir(parents=True, exist_ok=True)
(folder / "what-binds.png").write_bytes(plots.image(figure, ".png", numbers))
