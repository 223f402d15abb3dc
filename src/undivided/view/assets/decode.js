// The page's data: JSON, with arrays in base64 as `view/encode.py` writes them.

const page = JSON.parse(document.getElementById("data").textContent);

function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) found[at] = raw.charCodeAt(at);
  return found;
}

const numbers = remembered((text) => {
  const view = new DataView(bytes(text).buffer);
  const found = new Float32Array(view.byteLength / 4);
  for (let at = 0; at < found.length; at += 1) found[at] = view.getFloat32(4 * at, true);
  return found;
});

// Weights from 0 to 1; NaN where a query must not look.
const FORBIDDEN = 0xffffff;
const weights = remembered((text) => {
  const raw = bytes(text);
  const found = new Float64Array(raw.length / 3);
  for (let at = 0; at < found.length; at += 1) {
    const code = raw[3 * at] | (raw[3 * at + 1] << 8) | (raw[3 * at + 2] << 16);
    found[at] = code === FORBIDDEN ? NaN : code / (FORBIDDEN - 1);
  }
  return found;
});

// Decoded once: what is on the page never changes.
function remembered(decode) {
  const known = new Map();
  return (text) => {
    if (!known.has(text)) known.set(text, decode(text));
    return known.get(text);
  };
}

// How a number is written: four digits after the point, or the power of ten where those say little.
function written(value, power = powerOf([value])) {
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "∞").replace("-", "−");
  return (value / 10 ** power).toFixed(4).replace("-", "−");
}

// The power of ten that numbers side by side have in common; 0 where they are written as they are.
function powerOf(values) {
  const largest = Math.max(...values.filter(Number.isFinite).map(Math.abs), 0);
  return largest === 0 || (largest >= 0.01 && largest < 1000) ? 0 : Math.floor(Math.log10(largest));
}

// ·10⁻⁴
function times(power) {
  const raised = [...String(power)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)]));
  return power === 0 ? "" : `·10${raised.join("")}`;
}
