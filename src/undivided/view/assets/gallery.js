// Layers × heads as small maps, the samples as a film, and the switch between light and dark.

const miniatures = new Map();

// Made once: a pick elsewhere on the page shows the same canvas again.
function miniature(text, queries, keys, largest) {
  const known = [theme(), largest, text].join(" ");
  if (!miniatures.has(known)) miniatures.set(known, drawnMiniature(weights(text), queries, keys, largest));
  return miniatures.get(known);
}

function drawnMiniature(values, queries, keys, largest) {
  const made = element("canvas", { class: "mini", width: keys, height: queries, "aria-hidden": "true" });
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
    element("div", { role: "grid", "aria-labelledby": "heads-title", onkeydown: moveHead }, ...rows),
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

// Samples.

function drawFilm() {
  const film = byId("samples");
  const focused = film.contains(document.activeElement);
  const list = element(
    "div",
    { role: "listbox", "aria-labelledby": "samples-title", "aria-orientation": "horizontal", class: "frames", onkeydown: moveSample },
    ...page.samples.map(frame),
  );
  film.replaceChildren(list);
  const chosen = list.querySelector("[aria-selected=true]");
  if (focused) chosen.focus();
  if (list.scrollWidth > list.clientWidth) list.scrollLeft = chosen.offsetLeft - list.clientWidth / 2;
  byId("previous").disabled = state.sample === 0;
  byId("next").disabled = state.sample === page.samples.length - 1;
}

function frame(sample, index) {
  const chosen = index === state.sample;
  const verdict = verdictOf(answerOf(sample));
  return element(
    "div",
    {
      role: "option",
      class: `frame ${verdict}`,
      tabindex: chosen ? "0" : "-1",
      "aria-selected": String(chosen),
      "aria-label": [`sample ${sample.name}`, said(sample)].filter(Boolean).join(": "),
      "data-sample": index,
      onclick: () => look({ sample: index }),
    },
    thumbnail(sample),
    element("span", { class: "frame-label" }, name(answerOf(sample).predicted || sample.name), verdict === "wrong" ? " ✕" : ""),
  );
}

function said(sample) {
  const { predicted, label, right } = answerOf(sample);
  if (predicted === "") return "";
  if (label === null) return `predicted ${predicted}`;
  return `predicted ${predicted}, ${right ? "which is right" : `and it is ${label}`}`;
}

// What is said of a whole sample; where each position has an answer, how many of them are right.
function answerOf({ answer }) {
  if (!answer.each) return answer.positions[0];
  const known = answer.positions.filter(({ right }) => right !== null);
  const right = known.filter((position) => position.right).length;
  const predicted = known.length ? `${right}/${known.length}` : "";
  return { predicted, label: null, right: known.length ? right === known.length : null, top: [] };
}

function verdictOf({ right }) {
  return right === null ? "" : right ? "right" : "wrong";
}

function thumbnail({ inputs, name: number_ }) {
  const [input] = Object.values(inputs);
  if (input.kind === "picture") {
    const [height, width] = input.shape;
    const made = element("canvas", { width, height, class: "thumb", "aria-hidden": "true" });
    made.getContext("2d").putImageData(pixelsOf(input), 0, 0);
    return made;
  }
  if (input.kind === "series") {
    const [made, context] = canvas(64, 38, { class: "thumb wide", "aria-hidden": "true" });
    drawCurves(context, input, 64, 38, 1.2);
    return made;
  }
  if (input.kind !== "text") return element("span", { class: "frame-name" }, number_);
  const letters_ = input.tokens.every((token) => [...token].length <= 1);
  return element("span", { class: "frame-text" }, name(input.tokens.slice(0, 40).join(letters_ ? "" : " ")));
}

function moveSample(event) {
  const last = page.samples.length - 1;
  const to = { ArrowLeft: state.sample - 1, ArrowUp: state.sample - 1, ArrowRight: state.sample + 1, ArrowDown: state.sample + 1, Home: 0, End: last }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  look({ sample: to });
}

function turn(step) {
  look({ sample: state.sample + step });
  const sample = page.samples[state.sample];
  say(`sample ${sample.name}: ${said(sample)}`);
}

// Light and dark.

const THEMES = { system: "Auto", light: "Light", dark: "Dark" };

function drawTheme() {
  const chosen = document.documentElement.dataset.theme || "system";
  const group = byId("theme");
  const focused = group.contains(document.activeElement);
  group.replaceChildren(
    ...Object.entries(THEMES).map(([key, label]) =>
      element(
        "button",
        {
          type: "button",
          role: "radio",
          "aria-checked": String(key === chosen),
          tabindex: key === chosen ? "0" : "-1",
          "data-theme-choice": key,
          onclick: () => choose(key),
          onkeydown: (event) => {
            const step = ARROWS[event.key];
            if (!step) return;
            event.preventDefault();
            const keys = Object.keys(THEMES);
            choose(keys[(keys.indexOf(key) + step[0] + step[1] + keys.length) % keys.length]);
          },
        },
        label,
      ),
    ),
  );
  if (focused) group.querySelector("[aria-checked=true]").focus();
}

function choose(key) {
  if (key === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = key;
  drawTheme();
  look({});
}
