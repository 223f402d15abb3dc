// What the model says of the sample, or of the picked token where each has an answer of its own.

function drawAnswer() {
  const { answer, name: sampleName } = page.samples[state.sample];
  // Where each position has an answer of its own, it is that of the picked query.
  const one = answer.each && answer.positions.length === now().queries;
  const shown = answer.each
    ? one
      ? answer.positions[state.query]
      : answerOf(page.samples[state.sample])
    : answer.positions[0];
  const mark = verdictOf(shown);
  const entry = (title, id, text) =>
    element(
      "div",
      {},
      element("dt", {}, title),
      element("dd", { id, class: text.length > 12 ? "long" : "" }, name(text)),
    );
  byId("answer").replaceChildren(
    element(
      "p",
      { class: "of" },
      `sample ${sampleName}`,
      answer.each && one
        ? element("span", {}, ", at ", name(tokenName("queries", state.query)))
        : null,
    ),
    element(
      "dl",
      { class: "verdict" },
      entry(answer.each && !one ? "positions right" : "predicted", "predicted", shown.predicted),
      shown.label === null ? null : entry("true", "label", shown.label),
      mark
        ? element(
            "div",
            { class: mark },
            element("dt", { class: "hidden" }, "verdict"),
            element("dd", { class: "mark" }, mark === "right" ? "✓ right" : "✕ wrong"),
          )
        : null,
    ),
    shown.top.length ? bars(shown.top) : "",
  );
}

function bars(top) {
  return element(
    "ul",
    { class: "bars", "aria-label": "probabilities" },
    ...top.map(([label, p], index) => {
      const bar = element("span", { class: "fill", "aria-hidden": "true" });
      bar.style.width = `${100 * p}%`;
      return element(
        "li",
        {},
        element("span", { class: "class" }, name(label)),
        element("span", { class: "track" }, bar),
        number(p, `probability-${index}`, 0),
      );
    }),
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
