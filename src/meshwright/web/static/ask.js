// Where answers come from: the server, a worker that runs the same program here, or what a saved
// file holds.

const held = new Map();
const FEW = 200;
const LINES = "application/x-ndjson";
export const source = { recorded: null, worker: null, first: null, meanwhile: null, waits: null };

const key = (name, body) =>
  name +
  JSON.stringify(body, (_, v) =>
    v && typeof v === "object" && !Array.isArray(v)
      ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)))
      : v,
  );

export class Refused extends Error {}

function recorded(name, body) {
  const found = source.recorded[key(name, body)];
  if (found === undefined)
    throw new Refused(
      "This saved page holds only what was asked when it was saved. For anything else start " +
      "meshwright serve.",
    );
  return found;
}

function keep(name, body, answer) {
  held.set(key(name, body), answer);
  if (held.size > FEW) held.delete(held.keys().next().value);
}

// All answers of this visit, for a page that is saved.
export const answers = () => Object.fromEntries(held);

async function fetched(name, body, signal) {
  const response = await fetch(`api/${name}`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: `application/json, ${LINES}` },
    body: JSON.stringify(body),
    signal,
  }).catch((error) => {
    if (signal?.aborted) throw error;
    throw new Refused("The server does not answer: is meshwright serve still running?");
  });
  if (response.ok) return response;
  const told = await response
    .json()
    .catch(() => ({ error: `the server answered ${response.status}` }));
  throw new Refused(told.error);
}

// One answer; the same question is asked once.
export async function ask(name, body = {}, signal = undefined, fresh = false) {
  const known = held.get(key(name, body));
  if (known && !fresh) return known;
  if (source.recorded) return recorded(name, body);
  if (source.first?.[key(name, body)]) return source.first[key(name, body)];
  const answer = source.worker
    ? await source.worker(name, body, signal)
    : await onePiece(await fetched(name, body, signal));
  keep(name, body, answer);
  return answer;
}

// An answer that is one piece, or the last of lines that say how many wait before this one.
async function onePiece(response) {
  if (!response.headers.get("content-type").startsWith(LINES)) return response.json();
  for await (const line of said(parts(response))) return line;
  throw new Refused("the answer ended before its last line: ask again");
}

// An answer of many lines, each as it comes.
export async function* lines(name, body, signal) {
  const known =
    held.get(key(name, body)) ||
    source.first?.[key(name, body)] ||
    (source.recorded && recorded(name, body));
  if (known) {
    yield* known;
    return;
  }
  const all = [];
  for await (const line of unkept(name, body, signal)) {
    all.push(line);
    yield line;
  }
  keep(name, body, all);
}

// The answer that is the last line of many; those before it are told as they come.
export async function settled(name, body, signal, early) {
  if (held.has(key(name, body)) || source.recorded || source.first?.[key(name, body)])
    return ask(name, body, signal);
  source.meanwhile?.(body).then(
    (told) => told && !signal?.aborted && early({ meanwhile: told }),
    () => null, // a file that is not there: the answer itself comes
  );
  for await (const line of unkept(`${name}_lines`, body, signal)) {
    if (line.schema) {
      keep(name, body, line);
      return line;
    }
    early(line);
  }
  throw new Refused("the answer ended before its last line: ask again");
}

async function* unkept(name, body, signal) {
  if (source.worker) yield* said(source.worker.lines(name, body, signal));
  else yield* said(parts(await fetched(name, body, signal)));
}

// All lines but those that say how many wait before this one.
async function* said(all) {
  for await (const line of all) {
    if (line.error) throw new Refused(line.error);
    source.waits?.(line.waiting);
    if (!("waiting" in line)) yield line;
  }
}

async function* parts(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}
