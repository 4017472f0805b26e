// What the pages do beyond reading: players, filters, sortable tables, and code that can be scrolled by keyboard.
import { mountAll } from "./player.js";

function filter(form) {
  const items = [...document.querySelectorAll(`#${form.dataset.target} [data-stage]`)];
  const apply = () => {
    const wanted = {};
    for (const box of form.querySelectorAll("input[data-field]")) {
      wanted[box.dataset.field] ??= new Set();
      if (box.checked) wanted[box.dataset.field].add(box.value);
    }
    const word = (form.querySelector("[data-word]")?.value ?? "").trim().toLowerCase();
    let shown = 0;
    for (const item of items) {
      const fits = Object.entries(wanted).every(([field, values]) =>
        item.dataset[field].split(" ").some((value) => values.has(value)));
      item.hidden = !(fits && item.textContent.toLowerCase().includes(word));
      shown += !item.hidden;
    }
    form.querySelector("output").textContent = `${shown} ${form.dataset.of} ${items.length}`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

// The number that a cell begins with, or nothing: "1.29 (1 pair) of free", "90.5 %", "+12", "#144".
function numberOf(text) {
  const found = /^[#+]?([\u2212-]?\d[\d,]*\.?\d*)/.exec(text.trim());
  return found ? Number(found[1].replaceAll(",", "").replace("\u2212", "-")) : null;
}

function sortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].textContent.trim();
      const bare = (text) => text === "" || text === "-";
      const all = [...table.tBodies[0].rows];
      const numbers = all.every((row) => bare(value(row)) || numberOf(value(row)) !== null) &&
        new Set(all.map((row) => numberOf(value(row)))).size > 1 && !all.every((row) => /^\d{4}-\d\d/.test(value(row)));
      const order = numbers ? (a, b) => numberOf(value(a)) - numberOf(value(b))
        : (a, b) => value(a).localeCompare(value(b));
      // What has no value stays at the end, whichever way the others stand.
      const rows = all.filter((row) => !bare(value(row))).sort(order);
      table.tBodies[0].append(...(down ? rows.reverse() : rows), ...all.filter((row) => bare(value(row))));
    });
  });
}

// A box that scrolls must be reachable without a mouse.
function reachable() {
  for (const box of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  }
}

document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
document.querySelectorAll("form.filter").forEach(filter);
document.querySelectorAll("table.sortable, .sortable table").forEach(sortable);
document.addEventListener("toggle", reachable, true);
addEventListener("resize", reachable);
await mountAll();
reachable();
document.body.dataset.ready = "yes";
