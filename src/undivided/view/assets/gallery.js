// Layers × heads as small maps.

const miniatures = new Map();

// Made once: a pick elsewhere on the page shows the same canvas again.
function miniature(text, queries, keys, largest) {
  const known = [theme(), largest, text].join(" ");
  if (!miniatures.has(known))
    miniatures.set(known, drawnMiniature(weights(text), queries, keys, largest));
  return miniatures.get(known);
}

function drawnMiniature(values, queries, keys, largest) {
  const made = element("canvas", {
    class: "mini",
    width: keys,
    height: queries,
    "aria-hidden": "true",
  });
  const context = made.getContext("2d");
  const image = context.createImageData(keys, queries);
  const { weight, forbidden } = colours();
  const grey = [1, 3, 5].map((at) => parseInt(forbidden.slice(at, at + 2), 16));
  for (let at = 0; at < values.length; at += 1) {
    const colour = Number.isNaN(values[at]) ? grey : colourAt(weight, values[at] / largest);
    image.data.set([...colour, 255], 4 * at);
  }
  context.putImageData(image, 0, 0);
  return made;
}

const largestOf = remembered((text) => weights(text).reduce((most, w) => (w > most ? w : most), 0));

// The largest weight of one map, or of all maps of the sample where they share one scale.
function largestWeight(layer, head) {
  const { layers } = page.samples[state.sample];
  if (!state.shared) return largestOf(layers[layer].weights[head]) || 1;
  return Math.max(...layers.map((each) => Math.max(...each.weights.map(largestOf)))) || 1;
}

function drawHeads() {
  const { layers } = page.samples[state.sample];
  const focused = byId("heads").contains(document.activeElement);
  const rows = page.layers.map((layer, l) =>
    element(
      "div",
      { role: "row", class: layer.heads > 3 ? "layer many" : "layer" },
      element("span", { role: "rowheader", class: "layer-name" }, name(layer.name)),
      ...Array.from({ length: layer.heads }, (_, h) => head(layers[l], layer, l, h)),
    ),
  );
  byId("heads").replaceChildren(
    element(
      "div",
      { role: "grid", "aria-labelledby": "heads-title", onkeydown: moveHead },
      ...rows,
    ),
  );
  const chosen = byId("heads").querySelector("[aria-selected=true]");
  if (focused && chosen) chosen.focus();
}

function head(at, layer, l, h) {
  const [queries, keys] = at.shape;
  const chosen = state.layer === l && state.head === h;
  return element(
    "span",
    {
      role: "gridcell",
      class: "head",
      tabindex: chosen ? "0" : "-1",
      "aria-selected": String(chosen),
      "aria-label": `${layer.name}, head ${h}`,
      title: `head ${h}`,
      "data-layer": l,
      "data-head": h,
      onclick: () => look({ layer: l, head: h }),
    },
    miniature(at.weights[h], queries, keys, largestWeight(l, h)),
    element("span", { class: "head-number", "aria-hidden": "true" }, String(h)),
  );
}

function moveHead(event) {
  const step = ARROWS[event.key];
  if (!step) return;
  event.preventDefault();
  const layer = bounded(state.layer + step[0], page.layers.length);
  look({ layer, head: state.head + step[1] < 0 ? 0 : state.head + step[1] });
  say(`${page.layers[state.layer].name}, head ${state.head}`);
}
