// The program itself in the browser: Python by Pyodide, whose files lie beside this one. Asked {id, name, body};
// answers {id, answer}, {id, line} ... {id, done} for answers of many parts, or {id, error}.

let ready = null;

// Of a traceback, the line that says what is wrong.
const last = (error) =>
  String(error.message || error)
    .trim()
    .split("\n")
    .pop();

async function start() {
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const python = await loadPyodide({ indexURL: new URL("pyodide/", self.location.href).href });
  await python.loadPackage(["numpy", "rich"]);
  python.unpackArchive(await (await fetch("meshwright.zip")).arrayBuffer(), "zip", {
    extractDir: "/home/pyodide",
  });
  python.runPython(
    "import sys; sys.path.insert(0, '/home/pyodide')\nfrom meshwright.web.alone import answer, lines",
  );
  return { answer: python.globals.get("answer"), lines: python.globals.get("lines") };
}

self.onmessage = async ({ data: { id, name, body, many } }) => {
  try {
    ready ||= start();
    const python = await ready;
    if (!many)
      return self.postMessage({
        id,
        answer: JSON.parse(python.answer(name, JSON.stringify(body))),
      });
    for (const line of python.lines(name, JSON.stringify(body))) {
      self.postMessage({ id, line: JSON.parse(line) });
      await new Promise((go) => setTimeout(go, 0)); // what is asked meanwhile comes first
    }
    return self.postMessage({ id, done: true });
  } catch (error) {
    return self.postMessage({ id, error: last(error) });
  }
};
