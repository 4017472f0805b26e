// Steps through the compile pipeline of a typed regex, in a notebook (anywidget). Python compiles and writes the HTML of
// each step; here is only which of them are shown.

const KEYS = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
let counter = 0;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function render({ model, el }) {
  const id = `jf-pipeline-${++counter}`;
  let index = 0;
  const field = element("input", { type: "text", id, value: model.get("pattern"), spellcheck: "false", size: "40" });
  const form = element("form", { class: "jf-controls", onsubmit: (event) => {
    event.preventDefault();
    model.set("pattern", field.value);
    model.save_changes();
  } }, element("label", { for: id }, "Regex"), field, element("button", { type: "submit" }, "Compile"));
  const move = (by) => {
    index = Math.min(Math.max(0, index + by), model.get("steps").length - 1);
    show();
  };
  const button = (label, by, text) => element("button", { type: "button", "aria-label": label, title: label,
    onclick: () => move(by) }, text);
  const slider = element("input", { type: "range", min: "1", step: "1", "aria-label": "Step",
    oninput: () => move(Number(slider.value) - 1 - index) });
  const controls = element("div", { class: "jf-controls", role: "group", "aria-label": "Steps" },
    button("First step (Home)", -Infinity, "\u00ab"), button("Step before (left arrow)", -1, "\u2039"),
    button("Next step (right arrow)", 1, "\u203a"), button("Last step (End)", Infinity, "\u00bb"), slider);
  const list = element("ol", { class: "jf-steps" });
  const detail = element("div", { class: "jf-pane jf-fsm-box", "aria-live": "polite" });
  const error = element("p", { role: "alert", class: "jf-error" });
  const root = element("div", { class: "jf" }, form, error, controls, list, detail);
  root.addEventListener("keydown", (event) => {
    if (event.target === field) return event.stopPropagation();  // a notebook has meanings of its own for letters, enter
    if (event.target === slider || !(event.key in KEYS)) return;
    move(KEYS[event.key]);
    event.preventDefault();
    event.stopPropagation();  // and for arrows
  });
  const show = () => {
    const steps = model.get("steps");
    error.textContent = model.get("error");
    error.hidden = !model.get("error");
    controls.hidden = list.hidden = detail.hidden = !steps.length;
    if (!steps.length) return;
    slider.max = steps.length;
    slider.value = index + 1;
    list.replaceChildren(...steps.slice(0, index + 1).map((step, number) => {
      const line = element("li", {}, `${step.name}: ${step.sizes} (${step.ms} ms)`);
      if (number === index) line.setAttribute("aria-current", "step");
      return line;
    }));
    detail.innerHTML = steps[index].html;
  };
  const renew = () => { index = 0; show(); };
  model.on("change:steps", renew);
  model.on("change:error", show);
  show();
  el.replaceChildren(root);
  return () => { model.off("change:steps", renew); model.off("change:error", show); };
}

export default { render };
