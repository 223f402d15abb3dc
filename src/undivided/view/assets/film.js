// The samples side by side, to step through.

function drawFilm() {
  const film = byId("samples");
  const focused = film.contains(document.activeElement);
  const list = element(
    "div",
    {
      role: "listbox",
      "aria-labelledby": "samples-title",
      "aria-orientation": "horizontal",
      class: "frames",
      onkeydown: moveSample,
    },
    ...page.samples.map(frame),
  );
  film.replaceChildren(list);
  const chosen = list.querySelector("[aria-selected=true]");
  if (focused) chosen.focus();
  if (list.scrollWidth > list.clientWidth)
    list.scrollLeft = chosen.offsetLeft - list.clientWidth / 2;
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
    element(
      "span",
      { class: "frame-label" },
      name(answerOf(sample).predicted || sample.name),
      verdict === "wrong" ? " ✕" : "",
    ),
  );
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
  return element(
    "span",
    { class: "frame-text" },
    name(input.tokens.slice(0, 40).join(letters_ ? "" : " ")),
  );
}

function moveSample(event) {
  const last = page.samples.length - 1;
  const to = {
    ArrowLeft: state.sample - 1,
    ArrowUp: state.sample - 1,
    ArrowRight: state.sample + 1,
    ArrowDown: state.sample + 1,
    Home: 0,
    End: last,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  look({ sample: to });
}

function turn(step) {
  look({ sample: state.sample + step });
  const sample = page.samples[state.sample];
  say(`sample ${sample.name}: ${said(sample)}`);
}
