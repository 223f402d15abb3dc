// The switch between light and dark.

const THEMES = { system: "Auto", light: "Light", dark: "Dark" };

function drawTheme() {
  const chosen = document.documentElement.dataset.theme || "system";
  const group = byId("theme");
  const focused = group.contains(document.activeElement);
  group.replaceChildren(
    ...Object.entries(THEMES).map(([key, label]) =>
      element(
        "button",
        {
          type: "button",
          role: "radio",
          "aria-checked": String(key === chosen),
          tabindex: key === chosen ? "0" : "-1",
          "data-theme-choice": key,
          onclick: () => choose(key),
          onkeydown: (event) => {
            const step = ARROWS[event.key];
            if (!step) return;
            event.preventDefault();
            const keys = Object.keys(THEMES);
            choose(keys[(keys.indexOf(key) + step[0] + step[1] + keys.length) % keys.length]);
          },
        },
        label,
      ),
    ),
  );
  if (focused) group.querySelector("[aria-checked=true]").focus();
}

function choose(key) {
  if (key === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = key;
  drawTheme();
  look({});
}
