// Building the page. Text is only ever set as text: no string becomes markup anywhere.

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

// A name that came with the data, kept from turning its surroundings around.
function name(text) {
  return element("bdi", {}, text);
}

// A number as it is written for people, with the whole of it beside for programs.
function number(value, label, power = null) {
  const own = power === null ? powerOf([value]) : power;
  const text = written(value, own) + (power === null ? times(own) : "");
  const shown = element("data", { value: String(value), "data-name": label }, text);
  shown.title = String(value);
  return shown;
}

// A canvas as sharp as the screen, drawn on in units of the page.
function canvas(width, height, properties = {}) {
  const made = element("canvas", properties);
  const ratio = Math.max(1, window.devicePixelRatio || 1);
  made.width = Math.round(width * ratio);
  made.height = Math.round(height * ratio);
  made.style.width = `${width}px`;
  made.style.aspectRatio = `${width} / ${height}`;
  const context = made.getContext("2d");
  context.scale(ratio, ratio);
  return [made, context];
}

// Where in a canvas of that size a pointer is, from 0 to 1.
function place(event) {
  const box = event.currentTarget.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

function bounded(index, count) {
  return Math.min(count - 1, Math.max(0, index));
}

// The arrow keys as steps: [down, right], or nothing for any other key.
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function stripes(context, x, y, width, height, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let start = -height; start < width; start += 6) {
    context.moveTo(x + start, y + height);
    context.lineTo(x + start + height, y);
  }
  context.stroke();
  context.restore();
}
