"""Pipeline schedules replayed exactly beside their closed forms: the same layers in six orders."""

from meshwright import Job, timeline

job = Job("gpt3-175b", "64xa100-80", batch=64).with_(tp=8, pp=8)
for schedule, chunks in [
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved", 2),
    ("interleaved", 4),
    ("zb-h1", 1),
    ("zbv", 1),
]:
    exact = timeline(job, schedule=schedule, interleave=chunks)
    held = max(exact.timeline.in_flight)
    print(
        f"{schedule:>11} x{chunks}: {exact.exact_s:6.2f} s exact, closed form"
        f" {100 * exact.difference:+.1f} %, {100 * exact.timeline.bubble_fraction:4.1f} % idle,"
        f" {held:g} microbatches held"
    )
