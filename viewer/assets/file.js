// What a file of pages does for itself, since no server is there: it shows the page that the address names
// behind its `#`, with rows sorted and looked for as a server would.

// What the address says of a page's rows; all else says which page it is.
const stateKeys = ["sort", "order", "q", "from"];

const holder = document.getElementById("page");
let pages = {};
let first = "";
let shown = null;
let timer = 0;

async function unpack() {
  const text = document.getElementById("pages").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// Which page the address names, and what it says of its rows.
function asked() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const page = new URLSearchParams(query ?? "");
  const state = {};
  for (const key of stateKeys) {
    state[key] = page.get(key) ?? "";
    page.delete(key);
  }
  const rest = page.toString();
  const name = rest ? `${path}?${rest}` : path;
  return { name: Object.hasOwn(pages, name) ? name : first, state };
}

// A bar as long as the text of a cell says, in per cent, as a server would have put there.
function draw(cell) {
  const around = document.createElement("span");
  around.className = "with-bar";
  const width = Math.ceil(Number.parseFloat(cell.textContent));
  around.innerHTML = `<svg class="bar share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect x="0" y="0" width="${width}" height="10"/></svg>`;
  around.append(...cell.childNodes);
  cell.append(around);
}

// A choice leads to pages of the file, or is none.
function onlyPages(select, name) {
  const [path, query] = name.split("?");
  let n = 0;
  for (const option of select.options) {
    const wanted = new URLSearchParams(query ?? "");
    wanted.set(select.name, option.value);
    option.disabled = !option.defaultSelected && !pages[`${path}?${wanted}`];
    n += option.disabled ? 0 : 1;
  }
  if (n < 2) select.form.hidden = true;
}

// The address of the page `name` with its rows in this state.
function address(name, state) {
  const [path, query] = name.split("?");
  const all = new URLSearchParams(query ?? "");
  for (const key of stateKeys) if (state[key]) all.set(key, state[key]);
  const text = all.toString();
  return text ? `#/${path}?${text}` : `#/${path}`;
}

function show() {
  const { name, state } = asked();
  const isNew = name !== shown?.name;
  if (isNew) {
    const page = pages[name];
    holder.innerHTML = page.body;
    // Titles that say what the text does are not in the file.
    for (const cell of holder.querySelectorAll("table.rows td:not([title])")) {
      cell.title = cell.classList.contains("n") ? cell.textContent.replaceAll(",", "") : cell.textContent;
    }
    document.title = page.title;
    holder.dataset.page = name;
    for (const cell of holder.querySelectorAll("td.drawn")) draw(cell);
    // What only a server can look for.
    for (const form of holder.querySelectorAll("form.search")) {
      form.hidden = !form.closest("div.grid") && !form.querySelector("select");
    }
    for (const select of holder.querySelectorAll("select[name]")) onlyPages(select, name);
    scrollTo(0, 0);
  }
  if (isNew) {
    shown = { name, grids: [...holder.querySelectorAll("div.grid")].map((element) => new Grid(element, name)) };
    holder.querySelectorAll(".search button").forEach((button) => {
      if (!button.form.querySelector("select")) button.hidden = true;
    });
  }
  shown.grids.forEach((grid) => grid.set(state));
  if (isNew) document.dispatchEvent(new Event("page"));
}

// All rows of a table.
class Grid {
  constructor(element, name) {
    this.element = element;
    this.name = name;
    this.table = element.querySelector("table.rows");
    this.body = this.table.querySelector("tbody");
    this.rows = [...this.body.rows];
    this.input = element.querySelector('input[name="q"]');
    this.found = element.querySelector(".found");
    this.said = this.found?.textContent;
    this.heads = [...this.table.tHead.rows[0].cells];
    this.by = this.heads.findIndex((head) => head.hasAttribute("aria-sort"));
    this.element.querySelector(".pager")?.remove();
    this.input?.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.look(this.input.value), 150);
    });
  }

  look(q) {
    const { name, state } = asked();
    history.replaceState(history.state, "", address(name, { ...state, q }));
    this.set({ ...state, q });
  }

  set(state) {
    const sorted = this.heads.findIndex((head) => head.dataset.key === state.sort);
    const by = sorted < 0 ? this.by : sorted;
    let rows = this.rows.filter(isLike(state.q));
    if (sorted >= 0) rows.sort(order(this.heads[sorted].dataset.kind, sorted));
    if (state.order) {
      const isKnown = (row) => by < 0 || !row.cells[by].querySelector(".unknown");
      rows = [...rows.filter(isKnown).reverse(), ...rows.filter((row) => !isKnown(row))];
    }
    this.body.replaceChildren(...rows);
    if (this.input && document.activeElement !== this.input) this.input.value = state.q;
    if (this.found) {
      const noun = this.element.dataset.noun;
      this.found.textContent = state.q ? `${rows.length} of ${this.rows.length} ${noun}` : this.said;
    }
    this.heads.forEach((head, at) => {
      const ascends = ["text", "address"].includes(head.dataset.kind) !== Boolean(state.order);
      if (at === by) head.setAttribute("aria-sort", ascends ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
      const turned = at === by && !state.order ? "reversed" : "";
      const link = head.querySelector("a");
      if (link) link.href = address(this.name, { ...state, sort: head.dataset.key, order: turned });
    });
  }
}

// Whether a row has a name that is like `q`, in which `*` stands for anything.
function isLike(q) {
  const parts = q.split("*");
  return (row) => {
    let rest = row.dataset.name ?? "";
    for (const part of parts) {
      const at = rest.indexOf(part);
      if (at < 0) return false;
      rest = rest.slice(at + part.length);
    }
    return true;
  };
}

// In which order two rows stand: the largest number first, names by letter, what is not known last.
function order(kind, at) {
  const isNumber = kind === "number" || kind === "difference";
  const value = (row) => {
    const cell = row.cells[at];
    if (cell.querySelector(".unknown")) return undefined;
    const said = cell.dataset.value ?? cell.title;
    return isNumber ? Number.parseFloat(said) : said;
  };
  const compare = {
    text: (a, b) => (a < b ? -1 : a > b ? 1 : 0),
    address: (a, b) => Number(a) - Number(b),
    difference: (a, b) => Math.abs(b) - Math.abs(a),
    number: (a, b) => b - a,
  }[kind];
  return (a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === undefined || right === undefined) return (left === undefined) - (right === undefined);
    return compare(left, right) || Number(a.dataset.place) - Number(b.dataset.place);
  };
}

// A form asks for a page of this file.
function onSubmit(event) {
  const form = event.target;
  if (form.method === "dialog") return;
  event.preventDefault();
  const base = new URL(`file:///${shown.name.split("?")[0]}`);
  const path = new URL(form.getAttribute("action") ?? "", base).pathname.slice(1);
  const fields = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  // What the first page has chosen by itself is not in its address.
  const said = new URLSearchParams(shown.name.split("?")[1]);
  for (const select of form.querySelectorAll("select[name]")) {
    if (select.selectedOptions[0]?.defaultSelected && !said.has(select.name)) fields.delete(select.name);
  }
  location.hash = `/${path}?${fields}`;
}

// A link within a page leads to its place there: what is behind the `#` of the address is the page.
function onClick(event) {
  const link = event.target.closest?.("a[href^='#']");
  const at = link?.getAttribute("href").slice(1);
  if (!at || at.startsWith("/")) return;
  event.preventDefault();
  document.getElementById(at)?.scrollIntoView();
}

pages = await unpack();
first = Object.keys(pages)[0];
document.addEventListener("submit", onSubmit);
document.addEventListener("click", onClick);
addEventListener("hashchange", show);
show();
