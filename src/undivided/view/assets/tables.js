// How the numbers of the steps are laid out: vectors above one another, keys below one another.

const FEW_KEYS = 8;

function equation(label, parts) {
  return element(
    "p",
    { class: "equation" },
    label ? element("span", { class: "equation-label" }, `${label} = `) : null,
    ...parts,
  );
}

// Vectors above one another, each cell in the colour of its sign and size.
function vectors(...rows) {
  const table = element("table", { class: "vectors" });
  table.append(
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        element("td", {}),
        ...rows[0][1].map((_, d) => element("th", { scope: "col" }, String(d))),
      ),
    ),
    element(
      "tbody",
      {},
      ...rows.map(([label, values, key]) => {
        const largest = Math.max(...values.map(Math.abs).filter(Number.isFinite), 1e-30);
        const power = powerOf(values);
        return element(
          "tr",
          { "data-row": key },
          element("th", { scope: "row" }, label, element("small", {}, times(power))),
          ...values.map((x, d) => {
            const cell = element("td", {}, number(x, `${key}-${d}`, power));
            const colour = colourAt(colours().signed, 0.5 + (0.5 * x) / largest);
            cell.style.background = css(colour);
            cell.style.color = letters(colour);
            return cell;
          }),
        );
      }),
    ),
  );
  return element(
    "div",
    {
      class: "scroll",
      tabindex: "0",
      role: "region",
      "aria-label": rows.map(([label]) => label).join(", "),
    },
    table,
  );
}

// The keys with the largest weights and the picked one, or all of them.
function keyTable(w, id, columns, totals) {
  const order = Array.from({ length: w.keys }, (_, t) => t);
  if (!state.allKeys) order.sort((a, b) => (w.p[b] || 0) - (w.p[a] || 0) || a - b);
  const shown = state.allKeys ? order : order.slice(0, FEW_KEYS);
  if (!shown.includes(w.j)) shown.push(w.j);
  const rest = w.keys - shown.length;
  const most = columns.map(([, values]) =>
    Math.max(...values.map(Math.abs).filter(Number.isFinite), 1e-30),
  );
  const powers = columns.map(([, values]) => powerOf(values));
  const table = element(
    "table",
    { class: "keys", id },
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        element("th", { scope: "col" }, "key"),
        ...columns.map(([label], n) =>
          element("th", { scope: "col" }, label, element("small", {}, times(powers[n]))),
        ),
      ),
    ),
    element("tbody", {}, ...shown.map((t) => keyRow(w, t, columns, most, powers))),
    element(
      "tfoot",
      {},
      element(
        "tr",
        {},
        element("th", { scope: "row" }, `Σ over all ${w.keys} keys`),
        ...columns.map(([label], n) =>
          element(
            "td",
            {},
            label in totals ? number(totals[label], `${id}-total-${label}`, powers[n]) : "",
          ),
        ),
      ),
    ),
  );
  const all = element(
    "button",
    {
      type: "button",
      class: "quiet",
      id: `${id}-all`,
      "aria-pressed": String(state.allKeys),
      onclick: () => look({ allKeys: !state.allKeys }),
    },
    state.allKeys ? "the largest only" : `show all ${w.keys} keys`,
  );
  return element(
    "div",
    { class: "keys-box" },
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "keys" }, table),
    rest > 0 || state.allKeys ? all : null,
  );
}

function keyRow(w, t, columns, most, powers) {
  const forbidden = Number.isNaN(w.p[t]);
  return element(
    "tr",
    { class: `${t === w.j ? "picked" : ""}${forbidden ? " striped" : ""}`, "data-key": t },
    element("th", { scope: "row" }, name(tokenName("keys", t)), t === w.j ? " ◂ j" : ""),
    ...columns.map(([, values, key], n) => {
      if (forbidden && key !== "dot") return element("td", {}, key === "p" ? "forbidden" : "—");
      const bar = element("span", {
        class: values[t] < 0 ? "tick minus" : "tick",
        "aria-hidden": "true",
      });
      bar.style.width = `${(40 * Math.abs(values[t])) / most[n]}px`;
      return element("td", {}, bar, number(values[t], key, powers[n]));
    }),
  );
}
