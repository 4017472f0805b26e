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
    form.querySelector("output").textContent = `${shown} of ${items.length}`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
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
      const value = (row) => row.cells[column].textContent;
      const numbers = [...table.tBodies[0].rows].every((row) => /^#?\d*$/.test(value(row)));
      const order = numbers
        ? (a, b) => Number(value(a).replace("#", "")) - Number(value(b).replace("#", ""))
        : (a, b) => value(a).localeCompare(value(b));
      const rows = [...table.tBodies[0].rows].sort(order);
      table.tBodies[0].append(...(down ? rows.reverse() : rows));
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
document.querySelectorAll("table.sortable").forEach(sortable);
document.addEventListener("toggle", reachable, true);
addEventListener("resize", reachable);
await mountAll();
reachable();
document.body.dataset.ready = "yes";
