// The page comes to life.

byId("title").append(name(page.title));
byId("facts").append(
  ...page.facts.flatMap(([label, value], n) => [
    n ? " · " : "",
    element("span", {}, `${value} ${label === "trained" ? "" : label}`.trim()),
  ]),
  ...(page.source ? [" · ", name(page.source)] : []),
);
byId("previous").addEventListener("click", () => turn(-1));
byId("next").addEventListener("click", () => turn(1));

byId("foot").append(
  element(
    "p",
    {},
    "Computed by the reference engine in float64, dropout off. Weights are embedded as 24-bit fixed point, within 3·10⁻⁸ of it; all other numbers as float32, within 6·10⁻⁸ of their size. Point at a number to see the whole of it. Everything counts from 0; (1, 2) is the patch in row 1, column 2.",
  ),
  ...(page.leftOut.length
    ? [
        element(
          "p",
          { id: "left-out" },
          `Left out to keep this page small: ${page.leftOut.join("; ")}.`,
        ),
      ]
    : []),
  element(
    "p",
    {},
    "Keys: Tab goes from part to part; arrow keys move between samples, heads, cells and tokens; Home and End go to the first and the last.",
  ),
);

follow(drawFilm);
follow(drawAnswer);
follow(drawHeads);
follow(drawMap);
follow(drawLooks);
follow(drawWork);
darkSystem.addEventListener("change", () => look({}));
window.addEventListener("hashchange", () => look(recall()));

// The middle of the sample says more at first sight than its corner.
function middle() {
  const { queries, keys, layer } = now();
  const { kind, rows, columns, learned } = layer.queries;
  const query =
    kind === "patches"
      ? learned + Math.floor(rows / 2) * columns + Math.floor(columns / 2)
      : Math.floor(queries / 2);
  return { query: bounded(query, queries), key: layer.same ? query : Math.floor(keys / 2) };
}

drawTheme();
look({ ...middle(), ...recall() });
