// Numbers for people: two or three digits, a unit, never more than is known.

export function sig(x, digits = 3) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(x)) + 1e-9);
  if (size >= digits)
    return Math.round(x / 10 ** (size - digits + 1)) * 10 ** (size - digits + 1) >= 1e5
      ? grouped(Number(x.toPrecision(digits)))
      : grouped(Math.round(x));
  return x.toFixed(Math.min(Math.max(digits - 1 - size, 0), 9));
}

export function grouped(x) {
  return Math.round(x).toLocaleString("en-US");
}

const TIMES = [
  [86400 * 365.25 * 3, 86400 * 365.25, "years"],
  [86400 * 2, 86400, "days"],
  [7200, 3600, "h"],
  [120, 60, "min"],
  [1, 1, "s"],
  [1e-3, 1e-3, "ms"],
  [1e-6, 1e-6, "µs"],
  [0, 1e-9, "ns"],
];

export function seconds(x, digits = 3) {
  if (x === null || x === undefined) return "–";
  if (x === 0) return "0 s";
  const [, unit, name] = TIMES.find(([least]) => Math.abs(x) >= least);
  return `${sig(x / unit, digits)} ${name}`;
}

// Seconds of a step: in seconds up to an hour, so that steps compare at a glance.
export function step(x, digits = 3) {
  return x >= 1 && x < 3600 ? `${sig(x, digits)} s` : seconds(x, digits);
}

const COUNTS = [
  [1e15, 1e15, " P"],
  [1e12, 1e12, " T"],
  [1e9, 1e9, " B"],
  [1e6, 1e6, " M"],
  [1e4, 1e3, " k"],
];

export function count(x, digits = 3) {
  if (x === null || x === undefined) return "–";
  const found = COUNTS.find(([least]) => Math.abs(x) >= least * 0.9995);
  if (found) return sig(x / found[1], digits) + found[2];
  return Number.isInteger(x) ? grouped(x) : sig(x, digits);
}

export function flop(x, digits = 2) {
  if (!x) return "–";
  const power = Math.floor(Math.log10(x) + 1e-12);
  const lead = (x / 10 ** power).toFixed(digits - 1);
  return `${lead.replace(/\.0+$/, "")}e${power}`;
}

const BYTES = [
  [0.1 * 2 ** 30, 2 ** 30, "GiB"],
  [0.1 * 2 ** 20, 2 ** 20, "MiB"],
  [0.1 * 2 ** 10, 2 ** 10, "KiB"],
  [-Infinity, 1, "B"],
];

export function gib(x) {
  const [, unit, name] = x === 0 ? BYTES[0] : BYTES.find(([least]) => Math.abs(x) >= least);
  return `${sig(x / unit, x / unit < 10 ? 2 : 3)} ${name}`;
}

export const percent = (x, digits = 0) => `${(100 * x).toFixed(digits)} %`;
export const usd = (x) => (x === null || x === undefined ? "no price known" : `${count(x)} USD`);
export const energy = (joule) =>
  joule === null || joule === undefined ? "–" : watthours(joule / 3600);

function watthours(x) {
  const [least, name] = [
    [1e12, "TWh"],
    [1e9, "GWh"],
    [1e6, "MWh"],
    [1e3, "kWh"],
  ].find(([l]) => x >= l) || [1, "Wh"];
  return `${sig(x / least)} ${name}`;
}

// +6 %, -0.4 %: two digits, and what is no difference at all says so.
export function change(ratio) {
  if (ratio > 4) return `${sig(ratio, 2)} times`;
  if (ratio < 0.01) return `1/${sig(1 / ratio, 2)} of it`;
  const x = 100 * (ratio - 1);
  if (Math.abs(x) < 0.05) return "±0 %";
  const text = Math.abs(x) < 10 ? Math.abs(x).toFixed(1) : Math.abs(x).toFixed(0);
  return `${x > 0 ? "+" : "−"}${text.replace(/\.0$/, "")} %`;
}

// "6.2 – 13.6": the ends of an interval in one unit with the value.
export function range(interval, write) {
  if (!interval) return "";
  const [low, high] = interval.map((x) => write(x));
  const unit = (text) => text.replace(/^[\d.,e+−-]+\s*/, "");
  return unit(high) && unit(low) === unit(high)
    ? `${low.slice(0, -unit(high).length).trim()} – ${high}`
    : `${low} – ${high}`;
}

export const plural = (n, one, many = one + "s") => `${grouped(n)} ${n === 1 ? one : many}`;
