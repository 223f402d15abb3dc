// The sample itself: where the picked query looks, who looks at the picked key, over the patches of
// a picture, over text, over a curve, or over plain numbers.

const BOARD = 232;

function drawLooks() {
  const { layer, queries, keys, weights: values } = now();
  const active = document.activeElement;
  const focused = active && active.closest(".board") && active.closest(".board").dataset.side;
  const row = Array.from({ length: keys }, (_, j) => values[state.query * keys + j]);
  const column = Array.from({ length: queries }, (_, i) => values[i * keys + state.key]);
  byId("looks").replaceChildren(
    panel(
      "keys",
      row,
      "Where it looks",
      tokenName("queries", state.query),
      layer.same ? state.query : null,
      state.key,
    ),
    panel(
      "queries",
      column,
      "Who looks at it",
      tokenName("keys", state.key),
      layer.same ? state.key : null,
      state.query,
    ),
  );
  if (focused) byId("looks").querySelector(`[data-side=${focused}] [tabindex="0"]`).focus();
}

// A board of the tokens on one side of the attention, and the largest weights beside it.
function panel(side, values, title, of, self, other) {
  return element(
    "section",
    { class: "board", "data-side": side, "aria-label": `${title}: ${of}` },
    element("h3", {}, title),
    element("p", { class: "of" }, name(of), undrawn(inputOf(side))),
    element(
      "div",
      { class: "board-body" },
      board(side, values, self, other),
      strongest(side, values),
    ),
  );
}

function undrawn(input) {
  if (input.kind !== "series" || input.features <= input.shape[1]) return null;
  return ` · ${input.shape[1]} of ${input.features} features drawn`;
}

function strongest(side, values) {
  const order = values.map((_, t) => t).filter((t) => values[t] > 0);
  order.sort((a, b) => values[b] - values[a]);
  const list = order
    .slice(0, 5)
    .map((t) => element("li", {}, name(tokenName(side, t)), number(values[t], `${side}-${t}`, 0)));
  return element("ol", { class: "strongest", "aria-label": "the largest weights" }, ...list);
}

function board(side, values, self, other) {
  const { layer } = now();
  const tokens = layer[side];
  const input = inputOf(side);
  const current = self === null ? other : self;
  const largest = Math.max(...values.filter((w) => !Number.isNaN(w)), 1e-30);
  const properties = {
    tabindex: "0",
    role: "slider",
    "aria-label":
      side === "keys" ? "where it looks: pick a token" : "who looks at it: pick a token",
    "aria-valuemin": 0,
    "aria-valuemax": values.length - 1,
    "aria-valuenow": current,
    "aria-valuetext": spoken(side, current, values[current]),
    onkeydown: (event) => moveToken(event, side, current, values.length, tokens),
  };
  // Tokens that are of no input stand before those that are, and are counted with them.
  const first = tokens.kind === "learned" ? 0 : tokens.learned;
  const about = { side, first, values: values.slice(first), self, other, largest, tokens };
  return element(
    "div",
    { ...properties, class: "tokens" },
    first ? chips({ ...about, first: 0, values: values.slice(0, first) }, () => "∗") : null,
    drawn(about, input),
  );
}

function drawn(about, input) {
  const { tokens, values } = about;
  const fits = tokens.rows * tokens.columns === values.length;
  if (tokens.kind === "patches" && fits && input.kind === "picture") return picture(about, input);
  if (tokens.kind === "series" && input.kind === "series") return curve(about, input);
  const text = input.kind === "text" && tokens.kind !== "learned" ? input.tokens : null;
  return chips(about, (t) => (text && t < text.length ? text[t] : String(t)), text !== null);
}

function spoken(side, index, weight) {
  const end = Number.isNaN(weight) ? "forbidden" : `weight ${written(weight, 0)}`;
  return `${tokenName(side, index)}, ${end}`;
}

function moveToken(event, side, current, count, tokens) {
  const step = ARROWS[event.key];
  const ends = { Home: 0, End: count - 1 };
  if (!step && !(event.key in ends)) return;
  event.preventDefault();
  const down = tokens.kind === "patches" && current >= tokens.learned ? tokens.columns : 1;
  let to = step ? current + step[0] * down + step[1] : ends[event.key];
  if (to < tokens.learned && current >= tokens.learned && step) to = tokens.learned - 1;
  if (to >= 0 && to < count)
    pick(side === "keys" && !page.layers[state.layer].same ? "key" : "query", to);
}

function picked(side) {
  return side === "keys" ? "key" : "query";
}

// Pictures.

const pixelsMade = new Map();

// The picture as ink, on paper or, with only the ink, over something else; colours as they are.
function pixelsOf(input, onlyInk = false) {
  const key = theme() + onlyInk + input.pixels;
  if (pixelsMade.has(key)) return pixelsMade.get(key);
  const [height, width, channels] = input.shape;
  const raw = bytes(input.pixels);
  const image = new ImageData(width, height);
  const { ink, paper } = colours();
  for (let at = 0; at < width * height; at += 1) {
    const share = raw[at * channels] / 255;
    if (channels === 3) image.data.set([...raw.subarray(3 * at, 3 * at + 3), 255], 4 * at);
    else if (onlyInk) image.data.set([...ink, Math.round(185 * share)], 4 * at);
    else
      image.data.set(
        [...ink.map((dark, c) => Math.round(paper[c] + (dark - paper[c]) * share)), 255],
        4 * at,
      );
  }
  pixelsMade.set(key, image);
  return image;
}

function picture({ side, first, values, self, other, largest, tokens }, input) {
  const [rows, columns] = [tokens.rows, tokens.columns];
  const [tall, wide] = input.shape;
  const unit = BOARD / Math.max(tall, wide);
  const [width, height] = [wide * unit, tall * unit];
  const [made, context] = canvas(width, height, {
    onclick: (event) => {
      const [x, y] = place(event);
      const row = bounded(Math.floor(y * rows), rows);
      pick(picked(side), first + row * columns + bounded(Math.floor(x * columns), columns));
    },
  });
  const small = document.createElement("canvas");
  [small.width, small.height] = [wide, tall];
  const inColour = input.shape[2] === 3;
  small.getContext("2d").putImageData(pixelsOf(input, true), 0, 0);
  context.imageSmoothingEnabled = false;
  if (inColour) context.drawImage(small, 0, 0, width, height);
  const { weight, ink, forbidden, hatch } = colours();
  const [across, down] = [width / columns, height / rows];
  values.forEach((w, t) => {
    const [x, y] = [(t % columns) * across, Math.floor(t / columns) * down];
    const share = w / largest;
    // Weights lie below the ink of a grey picture, and veil one in colours. Of the scale three
    // quarters are used, so that ink is still seen on the strongest.
    const colour = Number.isNaN(w)
      ? forbidden
      : css(colourAt(weight, 0.75 * share), inColour ? 0.15 + 0.7 * share : 1);
    context.fillStyle = colour;
    context.fillRect(x, y, across, down);
    if (Number.isNaN(w)) stripes(context, x, y, across, down, hatch);
    context.strokeStyle = css(ink, 0.1);
    context.lineWidth = 1;
    context.strokeRect(x, y, across, down);
  });
  if (!inColour) context.drawImage(small, 0, 0, width, height);
  const outline = (token, dash, thick) => {
    if (token === null || token < first) return;
    const t = token - first;
    context.setLineDash(dash);
    for (const [colour, extra] of [
      [colours().paper, 2],
      [ink, 0],
    ]) {
      context.strokeStyle = css(colour);
      context.lineWidth = thick + extra;
      context.strokeRect(
        (t % columns) * across + 1.5,
        Math.floor(t / columns) * down + 1.5,
        across - 3,
        down - 3,
      );
    }
  };
  if (other !== self) outline(other, [4, 3], 1.5);
  outline(self, [], 2.5);
  return made;
}

// Series.

function curve({ side, first, values, self, other, largest }, input) {
  const times = values.length;
  const [width, height] = [BOARD * 1.5, BOARD * 0.75];
  const [made, context] = canvas(width, height, {
    onclick: (event) =>
      pick(picked(side), first + bounded(Math.floor(place(event)[0] * times), times)),
  });
  const { weight, ink, forbidden, hatch } = colours();
  const step = width / times;
  values.forEach((w, t) => {
    context.fillStyle = Number.isNaN(w) ? forbidden : css(colourAt(weight, w / largest));
    context.fillRect(t * step, 0, step + 0.5, height);
    if (Number.isNaN(w)) stripes(context, t * step, 0, step, height, hatch);
  });
  drawCurves(context, input, width, height, 1.6);
  const bar = (token, dash) => {
    if (token === null || token < first) return;
    const t = token - first;
    context.setLineDash(dash);
    context.strokeStyle = css(ink);
    context.lineWidth = 2;
    context.strokeRect(t * step + 1, 1, Math.max(2, step - 2), height - 2);
  };
  if (other !== self) bar(other, [4, 3]);
  bar(self, []);
  return made;
}

// One line for each feature, all on one scale.
function drawCurves(context, input, width, height, thickness) {
  const [times, features] = input.shape;
  const all = numbers(input.values);
  const [low, high] = all.reduce(
    ([a, b], x) => [Math.min(a, x), Math.max(b, x)],
    [Infinity, -Infinity],
  );
  const margin = 3 * thickness;
  const y = (value) =>
    height - margin - ((value - low) / (high - low || 1)) * (height - 2 * margin);
  const { ink, paper } = colours();
  context.lineJoin = "round";
  for (let f = 0; f < features; f += 1) {
    // A rim of paper keeps a curve visible on every colour below it.
    for (const [colour, thick] of [
      [paper, thickness + 2.4],
      [ink, thickness],
    ]) {
      context.strokeStyle = css(colour);
      context.setLineDash(f && colour === ink ? [2 + 3 * f, 3] : []);
      context.lineWidth = thick;
      context.beginPath();
      for (let t = 0; t < times; t += 1)
        context.lineTo(((t + 0.5) * width) / times, y(all[t * features + f]));
      context.stroke();
    }
  }
}

// Text, and tokens that are only numbers.

function chips({ side, first, values, self, other, largest }, text, flows = false) {
  const { weight, forbidden } = colours();
  const made = values.map((w, at) => {
    const t = first + at;
    const marks = [
      "word",
      Number.isNaN(w) ? "striped" : "",
      t === self ? "self" : t === other ? "other" : "",
    ];
    const chip = element(
      "span",
      {
        class: marks.filter(Boolean).join(" "),
        "data-token": t,
        title: tokenName(side, t),
        onclick: () => pick(picked(side), t),
      },
      name(text(at)),
    );
    const colour = Number.isNaN(w) ? null : colourAt(weight, w / largest);
    chip.style.background = colour ? css(colour) : forbidden;
    if (colour) chip.style.color = letters(colour);
    return chip;
  });
  return element("div", { class: flows ? "words" : "words plain" }, ...made);
}
