// What script adds to pages that work without it: keys, and rows that come as one scrolls. Sorting, filtering
// and cutting are the server's.

const pieceLength = 200;

// Keys: what has `data-key` is clicked, or takes the next keys if one can write in it.
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const writes = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
  if (writes) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "j" || event.key === "k") {
    if (step(event.key === "j" ? 1 : -1)) event.preventDefault();
    return;
  }
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!target) return;
  event.preventDefault();
  if (target instanceof HTMLInputElement) {
    target.focus();
    target.select();
  } else {
    target.click();
  }
}

// The link of the next row, or of the one before, takes the focus.
function step(by) {
  const links = [...document.querySelectorAll(":is(.grid, .outline) tbody tr[data-place] a:not(.more)")];
  if (links.length === 0) return false;
  const row = document.activeElement?.closest?.(":is(.grid, .outline) tr[data-place]");
  const at = row ? links.findIndex((link) => row.contains(link)) : -1;
  const first = links.findIndex((link) => link.getBoundingClientRect().top > 40);
  const next = at < 0 ? Math.max(first, 0) : Math.min(Math.max(at + by, 0), links.length - 1);
  links[next].focus({ preventScroll: true });
  links[next].closest("tr").scrollIntoView({ block: "nearest" });
  return true;
}

// Rows of a long table: those around what is seen are there, and room for all others.
class Grid {
  constructor(element) {
    this.element = element;
    this.table = element.querySelector("table.rows");
    this.adopt();
    const input = element.querySelector('input[name="q"]');
    let timer = 0;
    input?.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.look(input.value), 150);
    });
    addEventListener("scroll", () => this.scrolled(), { passive: true });
    addEventListener("resize", () => this.scrolled(), { passive: true });
  }

  // Takes over the rows that the table has.
  adopt() {
    this.body = this.table.querySelector("tbody[data-from]");
    this.from = Number(this.body.dataset.from);
    this.total = Number(this.body.dataset.total);
    this.count = this.body.rows.length;
    this.element.querySelector(".pager")?.remove();
    this.height = this.count > 0 ? this.body.getBoundingClientRect().height / this.count : 28;
    this.above = this.space(this.body, "beforebegin", this.from);
    this.below = this.space(this.body, "afterend", this.total - this.from - this.count);
    if (this.from > 0 && !this.wasScrolled) {
      scrollTo(0, this.table.getBoundingClientRect().top + scrollY + this.from * this.height);
    }
    this.wasScrolled = true;
  }

  // Room for rows that are not there, beside `body`.
  space(body, where, n) {
    const side = where === "beforebegin" ? body.previousElementSibling : body.nextElementSibling;
    let space = side?.classList.contains("space") ? side : null;
    if (!space) {
      space = document.createElement("tbody");
      space.className = "space";
      space.setAttribute("aria-hidden", "true");
      space.append(document.createElement("tr"));
      space.rows[0].append(document.createElement("td"));
      body.insertAdjacentElement(where, space);
    }
    space.hidden = n <= 0;
    space.rows[0].cells[0].colSpan = this.table.tHead.rows[0].cells.length;
    space.rows[0].cells[0].style.height = `${Math.max(n, 0) * this.height}px`;
    return space;
  }

  // The place of the first row that is seen.
  top() {
    const passed = -this.table.getBoundingClientRect().top;
    return Math.max(0, Math.min(Math.floor(passed / this.height), this.total - 1));
  }

  scrolled() {
    const top = this.top();
    const seen = Math.ceil(innerHeight / this.height) + 1;
    clearTimeout(this.noting);
    this.noting = setTimeout(() => this.note(top), 200);
    const isThere = top >= this.from && Math.min(top + seen, this.total) <= this.from + this.count;
    if (!isThere) this.fetch(Math.max(0, Math.min(top - (pieceLength - seen) / 2, this.total - pieceLength)) | 0);
  }

  // The address says where one is.
  note(top) {
    const address = new URL(location.href);
    if (top > 0) address.searchParams.set("from", top);
    else address.searchParams.delete("from");
    if (address.href !== location.href) history.replaceState(history.state, "", address);
  }

  async fetch(from) {
    if (this.wanted === from) return;
    this.wanted = from;
    const address = new URL(this.element.dataset.pieces, location.href);
    address.searchParams.set("from", from);
    address.searchParams.set("rows", pieceLength);
    const answer = await fetch(address);
    if (!answer.ok || this.wanted !== from) return;
    const piece = document.createElement("template");
    piece.innerHTML = `<table>${await answer.text()}</table>`;
    if (this.wanted !== from) return;
    const focused = document.activeElement?.closest?.("tr[data-place]")?.dataset.place;
    this.body.replaceWith(piece.content.querySelector("tbody"));
    this.wanted = undefined;
    this.adopt();
    if (focused) {
      this.body.querySelector(`tr[data-place="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
    }
    this.scrolled();
  }

  // What is written is looked for at once; the address says it, too.
  async look(q) {
    const address = new URL(location.href);
    if (q) address.searchParams.set("q", q);
    else address.searchParams.delete("q");
    address.searchParams.delete("from");
    this.looking = address.href;
    const answer = await fetch(address);
    if (!answer.ok || this.looking !== address.href) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = page.getElementById(this.element.id);
    if (!found || this.looking !== address.href) return;
    history.replaceState(history.state, "", address);
    this.element.dataset.pieces = found.dataset.pieces;
    this.element.querySelector(".found").replaceWith(found.querySelector(".found"));
    const table = found.querySelector("table.rows");
    this.table.replaceWith(table);
    this.table = table;
    found.querySelector(".pager")?.remove();
    this.wanted = undefined;
    this.adopt();
    const twins = page.querySelectorAll("a.twin");
    document.querySelectorAll("a.twin").forEach((twin, n) => (twin.href = twins[n]?.getAttribute("href") ?? twin.href));
  }
}

function start() {
  document.addEventListener("keydown", onKey);
  const keys = document.getElementById("keys");
  const button = document.querySelector("button.keys");
  button.hidden = false;
  button.addEventListener("click", () => keys.showModal());
  document.querySelectorAll(".grid").forEach((element) => {
    element.querySelector(".search button")?.setAttribute("hidden", "");
    new Grid(element);
  });
}

start();
