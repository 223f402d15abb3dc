// The picked head, large: a row for each query, a column for each key.

const MAP_SIZE = 460;
const SMALL = 4; // cells below that are a picture with a dot for each, made larger

function drawMap() {
  const { layer, queries, keys, weights: values } = now();
  const focused = document.activeElement && document.activeElement.id === "cells";
  const fit = MAP_SIZE / Math.max(keys, queries);
  const cell = fit < SMALL ? fit : Math.min(Math.floor(fit), 52);
  const [width, height] = [cell * keys, cell * queries];
  const [made, context] = canvas(width, height, {
    id: "cells",
    tabindex: "0",
    role: "application",
    "aria-roledescription": "attention map",
    "aria-label": `${layer.name}, head ${state.head}: ${queries} queries by ${keys} keys. Arrow keys move.`,
    "aria-describedby": "readout",
    onclick: (event) => look(cellAt(event, queries, keys)),
    onmousemove: (event) => readOut(cellAt(event, queries, keys)),
    onmouseleave: () => readOut(state),
    onkeydown: (event) => {
      const step = ARROWS[event.key];
      if (!step) return;
      event.preventDefault();
      look({ query: Math.max(0, state.query + step[0]), key: Math.max(0, state.key + step[1]) });
      say(cellText(state));
    },
  });
  const largest = largestWeight(state.layer, state.head);
  context.imageSmoothingEnabled = false;
  context.drawImage(painted(cell, largest), 0, 0, width, height);
  mark(context, cell, width, height);

  byId("map").replaceChildren(
    element("p", { class: "map-name" }, name(layer.name), `, head ${state.head}`),
    element(
      "div",
      { class: "plot" },
      element("span", { class: "axis down", "aria-hidden": "true" }, "query ↓"),
      element(
        "div",
        { class: "plot-body" },
        element("span", { class: "axis", "aria-hidden": "true" }, "key →"),
        made,
      ),
    ),
    element("p", { id: "readout", class: "readout" }),
    legend(largest, values.some(Number.isNaN)),
    sharedSwitch(),
  );
  readOut(state);
  if (focused) made.focus();
}

// The cells without marks, painted again only when they are others.
let kept = { key: null, cells: null };

function painted(cell, largest) {
  const { at, queries, keys, weights: values } = now();
  if (cell < SMALL) return miniature(at.weights[state.head], queries, keys, largest);
  const key = [theme(), cell, largest, at.weights[state.head]].join(" ");
  if (kept.key !== key) {
    const [cells, context] = canvas(cell * keys, cell * queries);
    paintCells(context, values, queries, keys, cell, largest);
    kept = { key, cells };
  }
  return kept.cells;
}

function paintCells(context, values, queries, keys, cell, largest) {
  const { weight, forbidden, hatch } = colours();
  const gap = cell >= 12 ? 1 : 0;
  for (let i = 0; i < queries; i += 1) {
    for (let j = 0; j < keys; j += 1) {
      const w = values[i * keys + j];
      context.fillStyle = Number.isNaN(w) ? forbidden : css(colourAt(weight, w / largest));
      context.fillRect(j * cell, i * cell, cell - gap, cell - gap);
    }
    // Forbidden cells lie side by side: a run of them is striped at once.
    for (let j = 0; j < keys; j += 1) {
      if (!Number.isNaN(values[i * keys + j])) continue;
      const from = j;
      while (j + 1 < keys && Number.isNaN(values[i * keys + j + 1])) j += 1;
      stripes(context, from * cell, i * cell, (j - from + 1) * cell - gap, cell - gap, hatch);
    }
  }
}

// The picked row and column, and the cell where they meet.
function mark(context, cell, width, height) {
  const { ink, paper } = colours();
  const outline = (x, y, across, down, thick, alpha, dash = []) => {
    // A rim of paper, so that a mark is seen on the darkest cells too.
    for (const [colour, line] of [
      [css(paper, alpha), thick + (cell < 12 ? 1 : 2)],
      [css(ink, alpha), thick],
    ]) {
      context.setLineDash(colour === css(ink, alpha) ? dash : []);
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(x, y, across, down);
    }
  };
  const [left, top] = [state.key * cell - 0.5, state.query * cell - 0.5];
  outline(0.75, top, width - 1.5, cell, 1.5, 0.55);
  outline(left, 0.75, cell, height - 1.5, 1.5, 0.55, [3, 3]);
  outline(left, top, cell, cell, 2.5, 1);
  context.setLineDash([]);
}

function cellAt(event, queries, keys) {
  const [x, y] = place(event);
  return {
    query: bounded(Math.floor(y * queries), queries),
    key: bounded(Math.floor(x * keys), keys),
  };
}

function cellText({ query, key }) {
  const { keys, weights: values } = now();
  const w = values[query * keys + key];
  const end = Number.isNaN(w) ? "which it must not" : `with weight ${written(w, 0)}`;
  return `${tokenName("queries", query)} looks at ${tokenName("keys", key)} ${end}`;
}

function readOut(at) {
  const { keys, weights: values } = now();
  const w = values[at.query * keys + at.key];
  byId("readout").replaceChildren(
    name(tokenName("queries", at.query)),
    " → ",
    name(tokenName("keys", at.key)),
    element("strong", {}, Number.isNaN(w) ? "forbidden" : number(w, "weight", 0)),
  );
}

function legend(largest, forbids) {
  const [bar, context] = canvas(160, 10, { class: "bar", "aria-hidden": "true" });
  const { weight, forbidden, hatch } = colours();
  for (let x = 0; x < 160; x += 1) {
    context.fillStyle = css(colourAt(weight, x / 159));
    context.fillRect(x, 0, 1, 10);
  }
  const [swatch, drawn] = canvas(18, 10, { class: "bar", "aria-hidden": "true" });
  drawn.fillStyle = forbidden;
  drawn.fillRect(0, 0, 18, 10);
  stripes(drawn, 0, 0, 18, 10, hatch);
  return element(
    "p",
    { class: "legend" },
    "weight 0 ",
    bar,
    ` ${written(largest, 0)}`,
    forbids ? element("span", { class: "forbidden" }, swatch, " may not look") : null,
  );
}

function sharedSwitch() {
  return element(
    "button",
    {
      type: "button",
      class: "quiet",
      id: "shared",
      "aria-pressed": String(state.shared),
      onclick: () => {
        look({ shared: !state.shared });
        byId("shared").focus();
      },
    },
    "one scale for all heads",
  );
}
