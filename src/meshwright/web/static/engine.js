// Asks the worker that runs the program in the browser. While it starts, the answers written with the page are shown.

import { Refused, source } from "./ask.js";

const waiting = new Map();
let [worker, count] = [null, 0];

function begin() {
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = ({ data }) => {
    const one = waiting.get(data.id);
    if (!one) return;
    one(data);
    if (!("line" in data)) waiting.delete(data.id);
  };
  worker.onerror = (event) => {
    for (const one of waiting.values()) one({ error: event.message });
    waiting.clear();
  };
}

function send(name, body, many, told, signal) {
  if (!worker) begin();
  const id = ++count;
  waiting.set(id, told);
  signal?.addEventListener("abort", () => waiting.delete(id));
  worker.postMessage({ id, name, body, many });
}

// Let all answers come from the worker.
export function engine() {
  const one = (name, body, signal) =>
    new Promise((done, failed) => {
      signal?.addEventListener("abort", () => failed(signal.reason));
      send(
        name,
        body,
        false,
        (data) => {
          const error = data.error || data.answer?.error;
          if (error) failed(new Refused(error));
          else done(data.answer);
        },
        signal,
      );
    });
  one.lines = async function* (name, body, signal) {
    const queue = [];
    let wake = () => {};
    signal?.addEventListener("abort", () => {
      queue.push({ stop: signal.reason });
      wake();
    });
    send(
      name,
      body,
      true,
      (data) => {
        queue.push(data);
        wake();
      },
      signal,
    );
    for (;;) {
      while (!queue.length)
        await new Promise((go) => {
          wake = go;
        });
      const data = queue.shift();
      if (data.stop) throw data.stop;
      if (data.error) throw new Refused(data.error);
      if (data.done) return;
      yield data.line;
    }
  };
  source.worker = one;
}
