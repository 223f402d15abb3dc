// The steps of a query in linear attention that differ from softmax's: features meet, and weights
// are shares of their sum. The engines never work these weights out; the page does, to be looked at.

const phi = (x) => (x > 0 ? x + 1 : Math.exp(x));
const slope = (x) => (x > 0 ? 1 : Math.exp(x));

function meetFeatures(w) {
  const [q, k] = [w.q.map(phi), w.k.map(phi)];
  return {
    label: "φ(q)·φ(k)",
    title: "Query meets key",
    formula: "a_{ij} = φ(q_i) · φ(k_j)\nφ(x) = x + 1 above 0, exp(x) below",
    text: "How well the key fits what the query asks for. Features are never below 0, so that products of them can be weights as they are.",
    body: [
      vectors(
        ["query", w.q, "q"],
        ["key", w.k, "k"],
        ["φ(query)", q, "phi-q"],
        ["φ(key)", k, "phi-k"],
        ["product", q.map((x, d) => x * k[d]), "product"],
      ),
      equation("sum of the products", [number(w.dots[w.j], "dot-again")]),
    ],
  };
}

function shares(w) {
  return {
    label: "shares",
    title: "Shares of the sum",
    formula: "P_{ij} = a_{ij} / n_i\nn_i = Σ_t a_{it}",
    text: "Divided by their sum, weights add up to 1; a forbidden key takes no part. Linear attention multiplies from the other end, φ(K)ᵀ·V first, and never works them out one by one: so its cost grows with the number of tokens, and not with its square.",
    body: [
      keyTable(
        w,
        "softmax-table",
        [
          ["φ(q)·φ(k)", w.dots, "dot"],
          ["weight P", w.p, "p"],
        ],
        { "φ(q)·φ(k)": w.n, "weight P": sum(w.p.filter((p) => !Number.isNaN(p))) },
      ),
    ],
  };
}

function backThroughShares(w) {
  const products = w.p.map((p, t) => p * w.dP[t]);
  return {
    label: "dA",
    title: "Back through the division",
    formula: "dA_{ij} = (dP_{ij} − Δ_i) / n_i\nΔ_i = Σ_t P_{it} dP_{it}",
    text: "Raising one weight makes the shares of all others smaller: only what is better than the row's mean Δ gets a pull upwards.",
    body: [
      equation("key j", [
        "(",
        number(w.dP[w.j], "dP-again"),
        " − ",
        number(w.delta, "delta"),
        ") / ",
        number(w.n, "n"),
        " = ",
        number(w.dS[w.j], "dS"),
      ]),
      keyTable(
        w,
        "gradient-table",
        [
          ["weight P", w.p, "p"],
          ["dP", w.dP, "dP"],
          ["P·dP", products, "p-dP"],
          ["dA", w.dS, "dS"],
        ],
        { "P·dP": w.delta },
      ),
    ],
  };
}

function featuresToQuery(w) {
  const share = w.k.map((x, d) => phi(x) * w.dS[w.j] * slope(w.q[d]));
  return {
    label: "dQ",
    title: "The query's gradient",
    formula: "dq_i = φ′(q_i) ∘ Σ_j dA_{ij} φ(k_j)",
    text: "The query should have been more like the keys whose weights are pulled up; φ′ is how much its features move with it.",
    body: [vectors(["from key j", share, "dQ-share"], ["dQ, all keys", w.dQ, "dQ"])],
  };
}

function featuresToKeys(w) {
  const share = w.q.map((x, d) => phi(x) * w.dS[w.j] * slope(w.k[d]));
  return {
    ...towardsKeys(w),
    formula: "dk_j = φ′(k_j) ∘ Σ_i dA_{ij} φ(q_i)\ndv_j = Σ_i P_{ij} dO_i",
    body: [
      vectors(["to dK, this query", share, "dK-share"], ["dK, all queries", w.dK, "dK"]),
      valueGradient(w),
    ],
  };
}
