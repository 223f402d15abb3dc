// Colour scales, made in OKLCH so that equal steps of a number are equal steps to the eye. Lightness
// carries the number alone; hue only helps, so that the scales serve colour-blind readers too.

const STEPS = 256;
const SCALES = {
  light: {
    weight: scale((t) => [
      0.975 - 0.69 * t,
      0.015 + 0.165 * Math.sin(Math.PI * t ** 0.85),
      85 - 130 * t,
    ]),
    signed: signed((t) => [0.972 - 0.42 * t, 0.16 * t]),
    forbidden: "#e9e6df",
    hatch: "#c2bdb2",
    ink: [38, 36, 33],
    paper: [253, 252, 249],
  },
  dark: {
    weight: scale((t) => [
      0.225 + 0.7 * t,
      0.015 + 0.165 * Math.sin(Math.PI * t ** 1.1),
      -50 + 135 * t,
    ]),
    signed: signed((t) => [0.25 + 0.47 * t, 0.15 * t]),
    forbidden: "#2b2a2e",
    hatch: "#4c4a52",
    ink: [228, 226, 220],
    paper: [27, 26, 30],
  },
};

function scale(at) {
  return Array.from({ length: STEPS }, (_, n) => srgb(...at(n / (STEPS - 1))));
}

// From −1 (blue) over 0 (the paper) to 1 (orange).
function signed(at) {
  return Array.from({ length: STEPS }, (_, n) => {
    const t = (2 * n) / (STEPS - 1) - 1;
    return srgb(...at(Math.abs(t)), t < 0 ? 250 : 55);
  });
}

// OKLCH → sRGB bytes; what no screen can show loses chroma and keeps its lightness.
function srgb(lightness, chroma, hue) {
  for (let c = chroma; c > 0; c -= 0.004) {
    const found = linear(lightness, c, hue);
    if (found.every((x) => x >= -0.0005 && x <= 1.0005)) return found.map(byte);
  }
  return linear(lightness, 0, 0).map(byte);
}

function linear(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

function byte(x) {
  const clipped = Math.min(1, Math.max(0, x));
  return Math.round(
    255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055),
  );
}

function colours() {
  return SCALES[theme()];
}

function colourAt(table, t) {
  return table[Math.round((STEPS - 1) * Math.min(1, Math.max(0, t)))];
}

function css([red, green, blue], alpha = 1) {
  return alpha === 1 ? `rgb(${red} ${green} ${blue})` : `rgb(${red} ${green} ${blue} / ${alpha})`;
}

// Dark letters on light colours and light ones on dark.
function letters([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#1c1b19" : "#fdfcf9";
}

// Light or dark: as the reader's system says, unless the switch on the page says otherwise.

const darkSystem = matchMedia("(prefers-color-scheme: dark)");

function theme() {
  return document.documentElement.dataset.theme || (darkSystem.matches ? "dark" : "light");
}
