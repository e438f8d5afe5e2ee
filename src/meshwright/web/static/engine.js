// Asks the worker that runs the program in the browser. Until it has started, plans worked out when
// the page was written stand in, with what they are of.

import { Refused, source } from "./ask.js";

const waiting = new Map();
let [worker, count, rows] = [null, 0, null];

// What is loading, or why it failed; "" once the program answers.
export const engineState = { loading: "the program", failed: "", changed() {} };

function begin() {
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = ({ data }) => {
    if ("state" in data) return changed({ loading: data.state });
    if ("failed" in data) return changed({ failed: data.failed });
    const one = waiting.get(data.id);
    if (!one) return;
    if (!("line" in data)) waiting.delete(data.id);
    one(data);
  };
  worker.onerror = (event) => {
    changed({ failed: event.message || "its files could not be loaded" });
    for (const one of waiting.values()) one({ error: sentence() });
    waiting.clear();
  };
}

function changed(told) {
  Object.assign(engineState, told);
  engineState.changed();
}

const sentence = () =>
  engineState.failed
    ? `The program does not run in this browser (${engineState.failed}); meshwright serve ` +
      "answers on your own machine."
    : "";

function send(name, body, many, told, signal) {
  if (!worker) begin();
  const id = ++count;
  waiting.set(id, told);
  signal?.addEventListener("abort", () => {
    if (waiting.delete(id)) worker.postMessage({ cancel: id });
  });
  worker.postMessage({ id, name, body, many });
}

const refused = (text) => new Refused(sentence() || text);

// Let all answers come from the worker, which starts at once unless the reader saves data.
export function engine() {
  const one = (name, body, signal) =>
    new Promise((done, failed) => {
      signal?.addEventListener("abort", () => failed(signal.reason));
      const told = (data) => {
        const error = data.error || data.answer?.error;
        if (error) failed(refused(error));
        else done(data.answer);
      };
      send(name, body, false, told, signal);
    });
  one.lines = async function* (name, body, signal) {
    const queue = [];
    let wake = () => {};
    const add = (data) => {
      queue.push(data);
      wake();
    };
    signal?.addEventListener("abort", () => add({ stop: signal.reason }));
    send(name, body, true, add, signal);
    for (;;) {
      while (!queue.length)
        await new Promise((go) => {
          wake = go;
        });
      const data = queue.shift();
      if (data.stop) throw data.stop;
      if (data.error) throw refused(data.error);
      if (data.done) return;
      yield data.line;
    }
  };
  source.worker = one;
  source.meanwhile = meanwhile;
  if (navigator.connection?.saveData) return;
  begin();
  worker.postMessage({}); // nothing is asked yet: it loads
}

// The plan worked out beforehand that is nearest to a question; null once the program answers.
async function meanwhile({ question }) {
  if (!engineState.loading) return null;
  rows ||= unpacked("answers.gz");
  const { batch, tokens, rows: all } = await rows;
  const near = nearest(all, question);
  if (!near || !engineState.loading) return null;
  const { on, row } = near;
  const same =
    on === question.on &&
    Object.keys(question).length === 4 &&
    question.batch === batch &&
    question.tokens === tokens;
  return { ...row, same, of: `${question.model} on ${on}, ${batch} tokens a step` };
}

export function nearest(all, question) {
  const [, count, chip] = /^(\d+)x(.+)$/.exec(question.on || "") || [];
  const sizes = Object.keys(all[question.model]?.[chip] || {});
  if (!sizes.length) return null;
  const far = (size) => Math.abs(Math.log(size / count));
  const size = sizes.reduce((best, one) => (far(one) < far(best) ? one : best));
  return { on: `${size}x${chip}`, row: all[question.model][chip][size] };
}

async function unpacked(file) {
  const packed = (await fetch(file)).body;
  const text = packed.pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(text).text());
}
