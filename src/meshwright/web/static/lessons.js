// Lessons as prepared addresses: a job, the number of it that shows the matter, and two sentences.

import { fold, h } from "./dom.js";
import { address } from "./state.js";

export const LESSONS = {
  tp: {
    title: "Why tp stays in a node",
    state: { model: "llama3-70b", on: "64xh100-sxm", batch: "1Mi", tp: "16" },
    term: "step_time/tp_comm",
    slide: "tp",
    says:
      "Tensor parallelism sends every layer's activations, so with 16 ranks it leaves the 8 " +
      "chips of a node and waits for a network many times slower. " +
      "Slide tp to 8 and see the wait shrink.",
  },
  bubble: {
    title: "What a bubble is",
    state: { model: "llama3-70b", on: "64xh100-sxm", batch: "64seq", tp: "2", pp: "8" },
    term: "step_time/bubble",
    slide: "batch",
    says:
      "A pipeline's last stage waits until the first microbatch arrives, and the first one waits " +
      "at the end: that is its fill and drain. A larger batch keeps the wait and spreads it: " +
      "slide the batch.",
  },
  fsdp: {
    title: "Where FSDP stops paying",
    state: {
      model: "llama3-8b",
      on: "512xh100-sxm",
      batch: "512seq",
      seq: "1024",
      tp: "1",
      cp: "1",
      pp: "1",
      zero: "3",
    },
    term: "step_time/dp_comm",
    slide: "sequence",
    says:
      "FSDP fetches all weights in every pass, however few tokens a chip has, and hides that " +
      "behind their arithmetic: with one short sequence a chip there is too little of it. " +
      "Slide the sequence up until the wait is gone.",
  },
  recompute: {
    title: "What recomputation costs",
    state: { model: "llama3-70b", on: "64xh100-sxm", batch: "1Mi", recompute: "full" },
    term: "step_time/compute",
    slide: "batch",
    says:
      "Recomputing drops activations and runs each layer's forward pass once more when gradients " +
      "need them. It pays only where memory would else force a layout that is slower still: " +
      "here it is fixed, and the page says what that costs.",
  },
  batch: {
    title: "When the batch is too small",
    state: { model: "llama3-8b", on: "1024xh100-sxm", batch: "128seq" },
    term: "tokens_per_s",
    slide: "batch",
    says:
      "With fewer sequences than chips each one is cut over several, and what a step costs " +
      "whatever its batch has little arithmetic to hide behind. " +
      "Slide the batch up: all chips do more a second, until arithmetic is nearly all there is.",
  },
};

export const lessonList = () =>
  fold(
    "Five lessons",
    h(
      "ul",
      {},
      Object.entries(LESSONS).map(([name, { title, state }]) =>
        h("li", {}, h("a", { href: address({ view: "plan", ...state, lesson: name }) }, title)),
      ),
    ),
  );
