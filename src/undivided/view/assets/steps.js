// One query, worked through in numbers: from q·k to the output, and from the loss back to dQ, dK
// and dV. Every number that is not a product, a sum or an exponential of two others on this page
// comes from the reference engine.

const SOFTMAX = {
  forward: [meet, scaled, softmax, output],
  backward: [arrives, backThroughValues, backThroughSoftmax, towardsQuery, towardsKeys],
};
const LINEAR = {
  forward: [meetFeatures, shares, output],
  backward: [arrives, backThroughValues, backThroughShares, featuresToQuery, featuresToKeys],
};

function drawWork() {
  const { at, steps, keys, queries, weights: row } = now();
  const active = document.activeElement && document.activeElement.id;
  if (!steps) {
    byId("work").replaceChildren(
      element(
        "div",
        { class: "note" },
        element(
          "p",
          {},
          "The steps of this head were left out to keep the page small; fewer samples leave more room for each.",
        ),
        element(
          "button",
          { type: "button", class: "quiet", id: "worked", onclick: goToWorked },
          "show a head that has them",
        ),
      ),
    );
    return;
  }
  const read = (part) => (steps[part] ? numbers(steps[part]) : null);
  const { query: i, key: j } = state;
  const forbidden = Number.isNaN(row[i * keys + j]);
  const vector = (part, at_, width) =>
    Array.from(read(part).subarray(at_ * width, (at_ + 1) * width));
  const cells = (part) => Array.from(read(part).subarray(i * keys, (i + 1) * keys));
  const linear = page.layers[state.layer].linear;
  const w = {
    i,
    j,
    forbidden,
    keys,
    queries,
    scale: at.scale,
    q: vector("q", i, at.width),
    k: vector("k", j, at.width),
    v: vector("v", j, at.valueWidth),
    out: vector("out", i, at.valueWidth),
    dOut: vector("dOut", i, at.valueWidth),
    dQ: vector("dQ", i, at.width),
    dK: vector("dK", j, at.width),
    dV: vector("dV", j, at.valueWidth),
    dots: cells("dots"),
    p: Array.from(row.subarray(i * keys, (i + 1) * keys)),
    dP: cells("dP"),
    dS: cells("dS"),
  };
  w.scores = steps.scores ? cells("scores") : w.dots.map((dot) => dot * at.scale);
  w.plain = !steps.scores;
  w.slopes = steps.slope ? cells("slope") : w.dots.map(() => at.scale);
  w.n = sum(w.dots.filter((_, t) => !Number.isNaN(w.p[t])));
  w.delta = sum(w.p.map((p, t) => (Number.isNaN(p) ? 0 : p * w.dP[t])));
  const { forward, backward } = linear ? LINEAR : SOFTMAX;
  const told = [...forward, ...backward].map((make, n) => ({
    ...make(w),
    way: n < forward.length ? "forward" : "backward",
  }));
  const articles = told.map((step, n) => article(n + 1, step));
  byId("work").replaceChildren(
    introduction(w, told),
    element("ol", { class: "steps" }, ...articles),
  );
  if (active && byId(active) && byId("work").contains(byId(active))) byId(active).focus();
}

// The nearest head with steps: of this layer, of this sample, of the first sample.
function goToWorked() {
  const { layers } = page.samples[state.sample];
  const first = (layer) => (layer ? layer.steps.findIndex(Boolean) : -1);
  if (first(layers[state.layer]) >= 0) return look({ head: first(layers[state.layer]) });
  const layer = layers.findIndex((each) => first(each) >= 0);
  if (layer >= 0) return look({ layer, head: first(layers[layer]) });
  return look({ sample: 0, layer: 0, head: 0 });
}

function sum(values) {
  return values.reduce((total, x) => total + x, 0);
}

function introduction(w, told) {
  const sample = page.samples[state.sample];
  return element(
    "div",
    { class: "intro" },
    element(
      "p",
      {},
      "The query is ",
      element("b", {}, name(tokenName("queries", w.i)), " (", element("i", {}, "i"), ` = ${w.i})`),
      ", followed through ",
      name(page.layers[state.layer].name),
      `, head ${state.head}. Where one key is shown in full it is `,
      element("b", {}, name(tokenName("keys", w.j)), " (", element("i", {}, "j"), ` = ${w.j})`),
      ". Pick others on the map. Backward follows ",
      ...followed(sample),
      ".",
    ),
    element(
      "nav",
      { class: "chips", "aria-label": "steps" },
      ...told.map(({ label }, n) =>
        element(
          "button",
          { type: "button", onclick: () => goTo(n + 1) },
          element("span", {}, String(n + 1)),
          label,
        ),
      ),
    ),
  );
}

function followed({ answer, loss }) {
  if (loss === null) return ["the sum of the model's outputs"];
  const known = answer.positions.some(({ label }) => label !== null);
  return [
    known
      ? "the loss of this sample, "
      : "the loss that this sample would have if the prediction were true, ",
    number(loss, "loss"),
  ];
}

function goTo(step) {
  const heading = byId(`step-${step}`);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  heading.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  heading.focus({ preventScroll: true });
}

function article(number_, { way, title, formula: written_, text, body }) {
  return element(
    "li",
    { class: way === "backward" ? "step-card back" : "step-card" },
    element(
      "div",
      { class: "telling" },
      element("p", { class: "way" }, way),
      element(
        "h3",
        { id: `step-${number_}`, tabindex: "-1" },
        element("span", { class: "count" }, String(number_)),
        title,
      ),
      element("p", { class: "formula" }, ...formula(written_)),
      element("p", { class: "text" }, text),
    ),
    element("div", { class: "showing" }, ...body),
  );
}

// `q_i·k_j` as letters with lower signs: what follows _ is set low, single letters lean.
function formula(text) {
  return text.split(/(_\{[^}]*\}|_[a-z])/).map((part) => {
    if (!part.startsWith("_")) return part;
    return element("sub", {}, part.replace(/[_{}]/g, ""));
  });
}

// Forward.

function meet(w) {
  const products = w.q.map((x, d) => x * w.k[d]);
  return {
    label: "q·k",
    title: "Query meets key",
    formula: "q_i · k_j = Σ_d q_{id} k_{jd}",
    text: "How well the key fits what the query asks for: number by number multiplied, then added up.",
    body: [
      vectors(["query", w.q, "q"], ["key", w.k, "k"], ["product", products, "product"]),
      equation("sum of the products", [number(w.dots[w.j], "dot")]),
    ],
  };
}

function scaled(w) {
  const parts = [
    number(w.dots[w.j], "dot-again"),
    " × ",
    number(w.scale, "scale"),
    " = ",
    number(w.dots[w.j] * w.scale, "scaled"),
  ];
  if (!w.plain) parts.push(" ; with softcap and bias ", number(w.scores[w.j], "score"));
  return {
    label: "scale",
    title: "Scaling",
    formula: w.plain
      ? "s_{ij} = scale · q_i · k_j"
      : "s_{ij} = softcap(scale · q_i · k_j) + bias_{ij}",
    text: "A sum of many products grows with their number; the scale, 1/√width unless the layer says otherwise, takes that back.",
    body: [equation("", parts)],
  };
}

function softmax(w) {
  const allowed = w.scores.map((s, t) => (Number.isNaN(w.p[t]) ? -Infinity : s));
  const most = Math.max(...allowed);
  const exps = allowed.map((s) => (most === -Infinity ? 0 : Math.exp(s - most)));
  return {
    label: "softmax",
    title: "Softmax over all keys",
    formula: "P_{ij} = exp(s_{ij}) / Σ_t exp(s_{it})",
    text: "Scores become shares that add up to 1. Taking the largest score away first changes nothing and keeps exp small. A forbidden key takes no part.",
    body: [
      keyTable(
        w,
        "softmax-table",
        [
          ["q·k", w.dots, "dot"],
          ["score", w.scores, "score"],
          ["exp(s − max)", exps, "exp"],
          ["weight P", w.p, "p"],
        ],
        { "exp(s − max)": sum(exps), "weight P": sum(w.p.filter((p) => !Number.isNaN(p))) },
      ),
    ],
  };
}

function output(w) {
  const p = Number.isNaN(w.p[w.j]) ? 0 : w.p[w.j];
  return {
    label: "Σ·v",
    title: "The mean of the values",
    formula: "o_i = Σ_j P_{ij} v_j",
    text: "Every value is taken by its share. Below, what the picked key gives, and the sum over all keys: the head's output for this query.",
    body: [
      vectors(
        ["value of key j", w.v, "v"],
        ["its share P·v", w.v.map((x) => x * p), "pv"],
        ["output, all keys", w.out, "out"],
      ),
    ],
  };
}

// Backward.

function arrives(w) {
  return {
    label: "dO",
    title: "A gradient arrives",
    formula: "dO_i = ∂loss / ∂o_i",
    text: "How the loss would change if the output changed a little. It comes from the layers above, which went back before.",
    body: [vectors(["dO", w.dOut, "dOut"])],
  };
}

function backThroughValues(w) {
  const products = w.dOut.map((x, d) => x * w.v[d]);
  return {
    label: "dP",
    title: "Back to the weights",
    formula: "dP_{ij} = dO_i · v_j",
    text: "A weight matters as much as its value points along the gradient that arrived.",
    body: [
      vectors(
        ["dO", w.dOut, "dOut-again"],
        ["value", w.v, "v-again"],
        ["product", products, "dp-product"],
      ),
      equation("sum of the products", [number(w.dP[w.j], "dP")]),
    ],
  };
}

function backThroughSoftmax(w) {
  const shares = w.p.map((p, t) => p * w.dP[t]);
  const p = Number.isNaN(w.p[w.j]) ? 0 : w.p[w.j];
  return {
    label: "dS",
    title: "Back through the softmax",
    formula: "dS_{ij} = P_{ij} (dP_{ij} − Δ_i)\nΔ_i = Σ_t P_{it} dP_{it}",
    text: "Raising one score lowers all other weights of its row: only what is better than the row's mean Δ gets a pull upwards. A row of dS adds up to 0.",
    body: [
      equation("key j", [
        number(p, "p-again"),
        " × (",
        number(w.dP[w.j], "dP-again"),
        " − ",
        number(w.delta, "delta"),
        ") = ",
        number(w.dS[w.j], "dS"),
      ]),
      keyTable(
        w,
        "gradient-table",
        [
          ["weight P", w.p, "p"],
          ["dP", w.dP, "dP"],
          ["P·dP", shares, "p-dP"],
          ["dS", w.dS, "dS"],
        ],
        { "P·dP": w.delta, dS: sum(w.dS.filter((_, t) => !Number.isNaN(w.p[t]))) },
      ),
    ],
  };
}

function towardsQuery(w) {
  const factor = w.dS[w.j] * w.slopes[w.j];
  return {
    label: "dQ",
    title: "The query's gradient",
    formula: w.plain
      ? "dq_i = scale · Σ_j dS_{ij} k_j"
      : "dq_i = Σ_j dS_{ij} softcap′ · scale · k_j",
    text: "The query should have been more like the keys whose scores are pulled up.",
    body: [
      vectors(["from key j", w.k.map((x) => x * factor), "dQ-share"], ["dQ, all keys", w.dQ, "dQ"]),
    ],
  };
}

function towardsKeys(w) {
  const factor = w.dS[w.j] * w.slopes[w.j];
  return {
    label: "dK, dV",
    title: "The key's and the value's gradients",
    formula: "dk_j = scale · Σ_i dS_{ij} q_i\ndv_j = Σ_i P_{ij} dO_i",
    text: "A key hears from every query, a value from every output it went into. First what this query says, then the sum over all of them.",
    body: [
      vectors(
        ["to dK, this query", w.q.map((x) => x * factor), "dK-share"],
        ["dK, all queries", w.dK, "dK"],
      ),
      valueGradient(w),
    ],
  };
}

function valueGradient(w) {
  const p = Number.isNaN(w.p[w.j]) ? 0 : w.p[w.j];
  return vectors(
    ["to dV, this query", w.dOut.map((x) => x * p), "dV-share"],
    ["dV, all queries", w.dV, "dV"],
  );
}
