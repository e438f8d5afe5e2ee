// The program itself in the browser: Python by Pyodide, whose files lie beside this one.
// Asked {id, name, body, many}, or told {cancel: id}; answers {id, answer}, {id, line} ...
// {id, done} for answers of many parts, or {id, error}; says {state} while it starts.

const waiting = new Map(); // what is asked and not yet answered, the first first
const LONG = new Set(["plan", "beside", "advise", "trace", "cluster_of_run", "read", "log"]);
let [ready, busy] = [null, false];

const say = (state) => self.postMessage({ state });
const turn = () => new Promise((go) => setTimeout(go, 0)); // lets in what is asked meanwhile

// Of a traceback, the line that says what is wrong.
const last = (error) =>
  String(error.message || error)
    .trim()
    .split("\n")
    .pop();

async function start() {
  say("Python");
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const program = fetch("meshwright.zip").then((reply) => reply.arrayBuffer());
  const indexURL = new URL("pyodide/", self.location.href).href;
  const python = await loadPyodide({ indexURL });
  say("NumPy");
  await python.loadPackage(["numpy", "rich"]);
  say("the program");
  python.unpackArchive(await program, "zip", { extractDir: "/home/pyodide" });
  python.runPython(
    "import sys; sys.path.insert(0, '/home/pyodide')\n" +
      "from meshwright.web.alone import json_answer, lines",
  );
  say("");
  const [answer, lines] = ["json_answer", "lines"].map((name) => python.globals.get(name));
  return { answer, lines };
}

function answered(python, { id, name, body }) {
  try {
    const answer = JSON.parse(python.answer(name, JSON.stringify(body)));
    self.postMessage({ id, answer });
  } catch (error) {
    self.postMessage({ id, error: last(error) });
  }
}

// What takes milliseconds never waits behind a search.
function quickOnes(python) {
  for (const asked of [...waiting.values()])
    if (!asked.many && !LONG.has(asked.name)) {
      waiting.delete(asked.id);
      answered(python, asked);
    }
}

// Line by line, until nobody waits for them.
async function streamed(python, { id, name, body }) {
  try {
    for (const line of python.lines(name, JSON.stringify(body))) {
      self.postMessage({ id, line: JSON.parse(line) });
      await turn();
      if (!waiting.has(id)) return;
      quickOnes(python);
    }
    self.postMessage({ id, done: true });
  } catch (error) {
    self.postMessage({ id, error: last(error) });
  }
  waiting.delete(id);
}

async function work() {
  const python = await ready;
  for (;;) {
    await turn();
    quickOnes(python);
    const [asked] = waiting.values();
    if (!asked) return;
    if (asked.many) await streamed(python, asked);
    else {
      waiting.delete(asked.id);
      answered(python, asked);
    }
  }
}

self.onmessage = async ({ data }) => {
  ready ||= start();
  if (data.cancel) return waiting.delete(data.cancel);
  if (data.id) waiting.set(data.id, data);
  if (busy) return;
  busy = true;
  try {
    await work();
  } catch (error) {
    for (const id of waiting.keys()) self.postMessage({ id, error: last(error) });
    waiting.clear();
    self.postMessage({ failed: last(error) });
  }
  busy = false;
};
