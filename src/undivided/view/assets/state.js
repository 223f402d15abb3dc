// What is looked at: a sample, a layer, a head, a query and a key. Everything on the page follows.

const state = { sample: 0, layer: 0, head: 0, query: 0, key: 0, shared: false, allKeys: false };
const watchers = [];

function now() {
  const sample = page.samples[state.sample];
  const layer = page.layers[state.layer];
  const at = sample.layers[state.layer];
  return {
    sample,
    layer,
    at,
    queries: at.shape[0],
    keys: at.shape[1],
    weights: weights(at.weights[state.head]),
    steps: at.steps[state.head],
  };
}

// Change some of it; what no longer fits is brought back inside.
function look(changes) {
  Object.assign(state, changes);
  state.sample = bounded(state.sample, page.samples.length);
  state.layer = bounded(state.layer, page.layers.length);
  state.head = bounded(state.head, page.layers[state.layer].heads);
  const [queries, keys] = page.samples[state.sample].layers[state.layer].shape;
  state.query = bounded(state.query, queries);
  state.key = bounded(state.key, keys);
  remember();
  for (const watcher of watchers) watcher();
}

// One token picked: in self-attention it is query and key at once.
function pick(side, index) {
  const both = page.layers[state.layer].same;
  look(both ? { query: index, key: index } : { [side]: index });
}

function follow(watcher) {
  watchers.push(watcher);
}

function say(text) {
  byId("live").textContent = text;
}

// The place is in the address, so that a head can be pointed at: page.html#0.1.3.17.17

function remember() {
  const { sample, layer, head, query, key } = state;
  try {
    history.replaceState(null, "", `#${[sample, layer, head, query, key].join(".")}`);
  } catch {
    // a page inside a notebook has no address of its own
  }
}

function recall() {
  if (!/^#\d{1,6}(\.\d{1,6}){4}$/.test(location.hash)) return {};
  const [sample, layer, head, query, key] = location.hash.slice(1).split(".").map(Number);
  return { sample, layer, head, query, key };
}

// What the tokens on one side of the picked layer are tokens of.
function inputOf(side) {
  const { inputs } = page.samples[state.sample];
  return inputs[page.layers[state.layer][side].source] ?? Object.values(inputs)[0];
}

// How tokens are called. All counts begin at 0, as in Python.

function tokenName(side, index) {
  const tokens = page.layers[state.layer][side];
  const input = inputOf(side);
  if (tokens.kind === "learned") return `learned query ${index}`;
  if (index < tokens.learned) return tokens.learned > 1 ? `learned token ${index}` : "class token";
  const at = index - tokens.learned;
  if (tokens.kind === "patches") {
    return `patch ${at} (${Math.floor(at / tokens.columns)}, ${at % tokens.columns})`;
  }
  if (input.kind === "text" && at < input.tokens.length) return `token ${at} “${input.tokens[at]}”`;
  if (tokens.kind !== "series") return `token ${at}`;
  const [queries, keys] = page.samples[state.sample].layers[state.layer].shape;
  const count = (side === "keys" ? keys : queries) - tokens.learned;
  return input.kind === "series" && count !== input.shape[0] ? `window ${at}` : `time ${at}`;
}
