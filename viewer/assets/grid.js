// What script adds to pages of a server, which work without it: rows that come as one scrolls, and as one
// writes what is looked for. Sorting, filtering and cutting are the server's.

const pieceLength = 200;
// Browsers draw nothing behind some 16 to 32 million pixels: rows that are not there have less room then.
const tallest = 8e6;

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
      timer = setTimeout(() => this.look(input.value), 60);
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
    this.squeeze = Math.min(1, tallest / (this.total * this.height));
    this.above = this.space(this.body, "beforebegin", this.from);
    this.below = this.space(this.body, "afterend", this.total - this.from - this.count);
    if (this.from > 0 && !this.wasScrolled) {
      this.showAtTop(this.from);
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
    space.rows[0].cells[0].style.height = `${Math.max(n, 0) * this.height * this.squeeze}px`;
    return space;
  }

  // The place of the first row that is seen, with what part of it is not.
  top() {
    const passed = -this.table.getBoundingClientRect().top;
    const within = (passed - this.from * this.height * this.squeeze) / this.height;
    const isThere = within >= 0 && within <= this.count;
    const top = isThere ? this.from + within : passed / (this.height * this.squeeze);
    return Math.max(0, Math.min(top, this.total - 1));
  }

  // Scrolls to where row `top`, which is there, is the first one.
  showAtTop(top) {
    const passed = this.from * this.height * this.squeeze + (top - this.from) * this.height;
    scrollTo(0, this.table.getBoundingClientRect().top + scrollY + passed);
  }

  scrolled() {
    const top = Math.floor(this.top());
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
    const answer = await fetch(address).catch(() => null);
    if (!answer?.ok) {
      // It may be there when it is asked for again.
      if (this.wanted === from) this.wanted = undefined;
      return;
    }
    if (this.wanted !== from) return;
    const piece = document.createElement("template");
    piece.innerHTML = `<table>${await answer.text()}</table>`;
    if (this.wanted !== from) return;
    const focused = document.activeElement?.closest?.("tr[data-place]")?.dataset.place;
    const top = this.top();
    this.body.replaceWith(piece.content.querySelector("tbody"));
    this.wanted = undefined;
    this.adopt();
    if (this.squeeze < 1) this.showAtTop(Math.max(top, this.from));
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
    document.querySelectorAll('input[type="hidden"][name="q"]').forEach((field) => (field.value = q));
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

document.querySelectorAll("div.grid").forEach((element) => {
  element.querySelector(".search button")?.setAttribute("hidden", "");
  new Grid(element);
});
