// Plays a recording of jumpforward.recording/1: in a notebook (anywidget) and on a web page, without any library.
//
// `play(root, recordings)` draws into `root`; `mountAll()` finds every <div class="jf-player"> of a page. What is shown
// and the sentences are in the recording; here is only how they look and how one moves through them.

const KEYS = { ArrowRight: "next", ArrowLeft: "previous", Home: "first", End: "last", " ": "play" };
const MARKS = [["mask", "m"], ["jump", "j"], ["draft", "d"], ["rejection", "r"], ["overlap", "o"], ["gate", "g"]];
const ORIGINS = {
  sampled: "sampled: chosen by the model under the mask",
  jumped: "jumped: written by the stage, the answer tokenized again",
  forced: "forced: appended by the grammar",
  draft_accepted: "draft accepted: guessed, and confirmed by the pass",
  draft_rejected: "draft rejected: guessed, and thrown away",
};
const MILLISECONDS_A_STEP = 1400;

let counter = 0;

/** An element with attributes and children; strings become text. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

/** Text in which blanks and control characters can be seen. */
function visible(text) {
  return Array.from(text, (char) => {
    const code = char.codePointAt(0);
    if (char === " ") return "\u2423";
    if (char === "\n") return "\u21b5";
    return code < 32 ? String.fromCodePoint(0x2400 + code) : char;
  }).join("");
}

function percent(probability) {
  const value = 100 * probability;
  if (value >= 99.95 && probability < 1) return ">99.9 %";
  if (value > 0 && value < 0.001) return "<0.001 %";
  return `${Number(value.toPrecision(3))} %`;
}

/** An SVG of ours as an element; whatever a drawing does not need is left out, since a recording may come from anywhere. */
function drawing(source) {
  const allowed = new Set(["svg", "g", "path", "circle", "text", "title", "defs", "marker"]);
  const names = /^(class|d|cx|cy|r|x|y|width|height|viewBox|fill|text-anchor|font-family|font-size|role|id|orient|refX|refY|marker\w+|marker-end|data-[\w-]+)$/;
  const parsed = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
  if (parsed.nodeName !== "svg") return null;
  const copy = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
    if (node.nodeType !== Node.ELEMENT_NODE || !allowed.has(node.nodeName)) return null;
    const made = document.createElementNS("http://www.w3.org/2000/svg", node.nodeName);
    for (const { name, value } of node.attributes) {
      if (names.test(name) && !/url\(\s*(?!#)/.test(value)) made.setAttribute(name, value);
    }
    for (const child of node.childNodes) {
      const inner = copy(child);
      if (inner) made.append(inner);
    }
    return made;
  };
  return copy(parsed);
}

class Player {
  constructor(root, recordings, { heading = 3, labels = [] } = {}) {
    this.root = root;
    this.recordings = recordings;
    this.id = `jf-${++counter}`;
    this.heading = `h${heading}`;
    this.labels = labels;
    this.chosen = 0;
    this.index = 0;
    this.timer = null;
    this.build();
    this.choose(0);
  }

  get recording() { return this.recordings[this.chosen]; }
  get frames() { return this.recording.frames; }

  build() {
    this.root.classList.add("jf");
    const button = (action, label, text) => h("button", {
      type: "button", "data-action": action, title: label, "aria-label": label, onclick: () => this.act(action) }, text);
    this.tabs = h("div", { class: "jf-tabs", role: "group", "aria-label": "Which recording" },
      this.recordings.map((one, index) => h("button", {
        type: "button", "aria-pressed": "false", onclick: () => this.choose(index) },
      this.labels[index] ?? labelIn(one, this.recordings))));
    this.slider = h("input", { type: "range", min: 1, step: 1, "aria-label": "Turn", oninput: (event) => {
      this.stop();
      this.go(Number(event.target.value) - 1);
    } });
    this.playButton = button("play", "Play (space)", "\u25b6");
    this.count = h("span", { class: "jf-count" });
    this.marks = h("div", { class: "jf-marks", role: "group", "aria-label": "Go to the next" },
      MARKS.map(([mark, key]) => h("button", {
        type: "button", "data-mark": mark, title: `Go to the next ${mark} (${key})`, onclick: () => this.seek(mark) },
      `next ${mark}`)));
    this.says = h("ul", { class: "jf-says", "aria-live": "polite" });
    this.here = h("p", { class: "jf-here" });
    this.text = h("p", { class: "jf-text" });
    this.panes = h("div", { class: "jf-panes" });
    this.fsm = h("div", { class: "jf-fsm-box", tabindex: "0", role: "region", "aria-label": "The automaton" });
    this.fsmPane = h("section", { class: "jf-pane jf-wide" }, h(this.heading, {}, "The automaton"), this.fsm);
    this.head = h("p", { class: "jf-head" });
    this.root.replaceChildren(
      this.recordings.length > 1 ? this.tabs : "", this.head,
      h("div", { class: "jf-controls", role: "group", "aria-label": "Controls" },
        button("first", "First turn (Home)", "\u00ab"), button("previous", "Turn before (left arrow)", "\u2039"),
        this.playButton, button("next", "Next turn (right arrow)", "\u203a"), button("last", "Last turn (End)", "\u00bb"),
        this.slider, this.count),
      this.marks,
      h("section", { class: "jf-pane jf-wide" }, h(this.heading, {}, "The answer so far"), this.text, legend()),
      h("section", { class: "jf-pane jf-wide" }, h(this.heading, {}, "What happened"), this.says, this.here),
      this.fsmPane, this.panes);
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onButton = event.target instanceof HTMLButtonElement && event.key === " ";
    const onSlider = event.target === this.slider && event.key !== " ";
    const mark = MARKS.find(([, key]) => key === event.key);
    if (KEYS[event.key] && !onButton && !onSlider) this.act(KEYS[event.key]);
    else if (mark) this.seek(mark[0]);
    else return;
    event.preventDefault();
    event.stopPropagation();  // a notebook has meanings of its own for these keys
  }

  act(action) {
    const last = this.frames.length - 1;
    if (action === "play") return this.timer === null ? this.start() : this.stop();
    this.stop();
    this.go({ first: 0, previous: this.index - 1, next: this.index + 1, last }[action]);
  }

  start() {
    if (this.index >= this.frames.length - 1) this.go(0);
    this.timer = setInterval(() => {
      if (this.index >= this.frames.length - 1) this.stop();
      else this.go(this.index + 1);
    }, MILLISECONDS_A_STEP);
    this.says.setAttribute("aria-live", "off");  // else a screen reader never catches up
    this.playButton.textContent = "\u2016";
    this.playButton.setAttribute("aria-label", "Pause (space)");
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.says.setAttribute("aria-live", "polite");
    this.playButton.textContent = "\u25b6";
    this.playButton.setAttribute("aria-label", "Play (space)");
  }

  seek(mark) {
    this.stop();
    const after = this.frames.findIndex((frame, index) => index > this.index && frame.marks.includes(mark));
    const found = after >= 0 ? after : this.frames.findIndex((frame) => frame.marks.includes(mark));
    if (found >= 0) this.go(found);
  }

  choose(index) {
    this.stop();
    this.chosen = index;
    [...this.tabs.children].forEach((tab, number) => tab.setAttribute("aria-pressed", String(number === index)));
    const { request, stage, counts, picture } = this.recording;
    const constraint = request.constraint === null ? "no constraint" :
      `${request.constraint.kind} ${request.constraint.source || request.constraint.choices.join(" | ")}`;
    this.head.replaceChildren(
      h("strong", {}, `Stage ${stage.id}: ${stage.title}`), h("br"),
      `${request.prompt ?? ""} `, h("code", {}, constraint), h("br"),
      `${counts.forward_passes} forward passes for ${this.tokensAt(this.frames.length - 1).length} tokens`);
    this.fsmPane.hidden = picture === null;
    this.fsm.replaceChildren(picture === null ? "" : drawing(picture.svg) ?? "");
    this.slider.max = this.frames.length;
    for (const button of this.marks.children) {
      button.hidden = !this.frames.some((frame) => frame.marks.includes(button.dataset.mark));
    }
    this.go(0);
  }

  tokensAt(index) {
    let tokens = [];
    for (const frame of this.frames.slice(0, index + 1)) tokens = tokens.slice(0, frame.keep).concat(frame.tokens);
    return tokens;
  }

  go(index) {
    this.index = Math.min(Math.max(0, index), this.frames.length - 1);
    const frame = this.frames[this.index];
    this.slider.value = this.index + 1;
    this.slider.setAttribute("aria-valuetext", `turn ${this.index + 1} of ${this.frames.length}`);
    this.count.textContent = `turn ${this.index + 1} of ${this.frames.length}, pass ${frame.passes}`;
    this.text.replaceChildren(...tokenList(this.tokensAt(this.index), frame.keep));
    this.says.replaceChildren(...frame.says.map((line) => h("li", {}, line)));
    this.here.textContent = frame.here;
    this.here.hidden = !frame.here;
    this.panes.replaceChildren(...[
      this.pane("Allowed tokens", maskTable(frame.mask)), this.pane("Tokenized again", rewriteView(frame.rewrite)),
      this.pane("Draft", draftView(frame.draft)), this.pane("Batch and queues", loopView(frame)),
      this.pane("Memory", memoryView(frame)), this.pane("Order of events", eventView(frame)),
      this.pane("The grammar's own account", grammarView(frame.grammar)),
      this.pane("Milliseconds, while recording", timeView(frame.ms)),
    ].filter(Boolean));
    this.showState(frame.state);
    this.root.dispatchEvent(new CustomEvent("jf-step", { detail: { index: this.index } }));
  }

  pane(title, content) {
    return content && h("section", { class: "jf-pane" }, h(this.heading, {}, title), content);
  }

  showState(state) {
    for (const old of this.fsm.querySelectorAll(".jf-current")) old.classList.remove("jf-current");
    if (state === null) return;
    const current = this.fsm.querySelector(`[data-state="${state}"]`) ??
      [...this.fsm.querySelectorAll("[data-inside]")].find((one) => one.dataset.inside.split(" ").includes(String(state)));
    if (!current) return;
    current.classList.add("jf-current");
    const box = this.fsm.getBoundingClientRect();
    const place = current.getBoundingClientRect();
    this.fsm.scrollLeft += place.left + place.width / 2 - box.left - box.width / 2;
  }
}

function labelOf({ stage, settings }) {
  const more = [settings.overlap ? "overlap" : "", settings.backend_jump === "none" ? "" : settings.backend_jump];
  return [`Stage ${stage.id}`, ...more.filter(Boolean)].join(" + ");
}

/** The label, with the backend where another recording has the same one. */
function labelIn(one, recordings) {
  const label = labelOf(one);
  const alike = recordings.filter((other) => labelOf(other) === label);
  return alike.length > 1 && new Set(alike.map((other) => other.settings.backend)).size > 1 ?
    `${label}, ${one.settings.backend}` : label;
}

function legend() {
  return h("ul", { class: "jf-legend", "aria-label": "How tokens came" }, Object.entries(ORIGINS).map(
    ([origin, text]) => h("li", {}, h("span", { class: `jf-token jf-${origin}` }, origin.replace("_", " ")),
      h("span", { class: "jf-hint" }, text.slice(text.indexOf(":"))))));
}

function tokenList(tokens, from = tokens.length) {
  if (!tokens.length) return [h("span", { class: "jf-hint" }, "nothing yet")];
  return tokens.map((token, index) => h("span", {
    class: `jf-token jf-${token.origin}${index >= from ? " jf-new" : ""}`,
    title: `${token.id}: ${ORIGINS[token.origin] ?? token.origin}` }, visible(token.text)));
}

function maskTable(mask) {
  if (mask === null) return null;
  const rows = (list) => list.map(([text, probability, allowed]) => h("tr", { class: allowed ? "" : "jf-out" },
    h("th", { scope: "row" }, visible(text)), h("td", { class: "jf-number" }, percent(probability)),
    h("td", {}, allowed ? "" : "forbidden"),
    h("td", { class: "jf-bar-cell", "aria-hidden": "true" },
      h("span", { class: "jf-bar", style: `width:${Math.max(1, 100 * probability)}%` }))));
  const table = (caption, list) => h("table", { class: "jf-table" }, h("caption", {}, caption), h("tbody", {}, rows(list)));
  return h("div", {},
    h("p", {}, `${mask.allowed.toLocaleString("en")} of ${mask.width.toLocaleString("en")} tokens are allowed; the mask ` +
      `removed ${percent(1 - mask.mass)} of the probability.`),
    table("What the model wanted", mask.raw), table("Under the mask", mask.masked));
}

function rewriteView(rewrite) {
  if (rewrite === null) return null;
  return h("div", {}, h("p", { class: "jf-hint" }, "before"), h("p", { class: "jf-text" }, tokenList(rewrite.old, rewrite.common)),
    h("p", { class: "jf-hint" }, "after"), h("p", { class: "jf-text" }, tokenList(rewrite.new, rewrite.common)));
}

function draftView(draft) {
  return draft.length ? h("p", { class: "jf-text" }, tokenList(draft)) : null;
}

function pairs(entries) {
  return h("dl", { class: "jf-pairs" }, entries.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]));
}

function loopView(frame) {
  const pass = frame.batch.map(([rid, mode, fed]) => [rid, `${mode}, reads ${fed}`]);
  const queues = Object.entries(frame.queues).map(([name, rids]) => [name, rids.join(", ")]);
  const loop = [];
  if (frame.overlap) loop.push(["overlap", "the next pass is launched already"]);
  if (frame.gate !== null) loop.push(["gate", frame.gate]);
  return pairs([...pass, ...queues, ...loop]);
}

function memoryView(frame) {
  const kv = Object.entries(frame.kv);
  if (!kv.length) return null;
  const item = (number, seen) => {
    const node = frame.tree[number];
    if (!node || seen.has(number)) return null;
    const inner = node.children.map((child) => item(child, new Set([...seen, number]))).filter(Boolean);
    const text = node.slots === 0 ? "root" : visible(node.text.length > 60 ? `\u2026${node.text.slice(-60)}` : node.text);
    return h("li", {}, h("code", {}, text), ` ${node.slots} slots${node.locked ? ", held" : ""}`,
      inner.length ? h("ul", {}, inner) : null);
  };
  return h("div", {}, pairs(kv), frame.tree.length ? h("p", { class: "jf-hint" }, "radix tree") : null,
    frame.tree.length ? h("ul", { class: "jf-tree" }, item(0, new Set())) : null);
}

function eventView(frame) {
  return frame.events.length ? h("ol", { class: "jf-events" }, frame.events.map((event) => h("li", {}, event))) : null;
}

function grammarView(grammar) {
  const entries = Object.entries(grammar);
  return entries.length ? pairs(entries.map(([name, value]) => [name, typeof value === "string" ? visible(value) : value])) : null;
}

function timeView(ms) {
  const entries = Object.entries(ms).filter(([, value]) => value > 0);
  return entries.length ? pairs(entries.map(([phase, value]) => [phase, value.toFixed(1)])) : null;
}

/** Draw a player of these recordings into `root`. */
export function play(root, recordings, options = {}) {
  return new Player(root, recordings, options);
}

/** Give every <div class="jf-player"> of the page its player: recordings from <script type="application/json"> inside, or from data-src. */
export async function mountAll(scope = document) {
  for (const root of scope.querySelectorAll(".jf-player:not(.jf)")) {
    const inline = [...root.querySelectorAll('script[type="application/json"]')].map((one) => JSON.parse(one.textContent));
    const named = (root.dataset.src ?? "").split(" ").filter(Boolean);
    const fetched = await Promise.all(named.map(async (name) => (await fetch(new URL(name, document.baseURI))).json()));
    play(root, [...inline, ...fetched], { heading: Number(root.dataset.heading ?? 3) });
  }
}

/** anywidget's entry: `recordings` is a trait of the Python side, `index` follows the turn. */
function render({ model, el }) {
  const draw = () => {
    const root = h("div", {});
    el.replaceChildren(root);
    const player = play(root, model.get("recordings"), { heading: 4, labels: model.get("labels") });
    player.go(model.get("index"));
    root.addEventListener("jf-step", (event) => {
      model.set("index", event.detail.index);
      model.save_changes();
    });
    return player;
  };
  let player = draw();
  const follow = () => { if (model.get("index") !== player.index) player.go(model.get("index")); };
  const redraw = () => { player.stop(); player = draw(); };
  model.on("change:index", follow);
  model.on("change:recordings", redraw);
  return () => { player.stop(); model.off("change:index", follow); model.off("change:recordings", redraw); };
}

export default { render };
