// Parts of a page that are shown again without the page around them: frames that are zoomed, rows that are
// opened. The server draws them, and the address says which they are: without script, links do the same.

let wanted = "";

// Shows the part that is at `address`; `focus` finds again what had the focus.
async function show(address, note, focus) {
  const part = document.querySelector("[data-part]");
  wanted = address.href;
  const answer = await fetch(address);
  if (wanted !== address.href) return;
  const page = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = page && page.getElementById(part.id);
  if (!found) {
    if (note) location.href = address;
    else location.reload();
    return;
  }
  if (wanted !== address.href) return;
  part.replaceWith(found);
  document.title = page.title;
  note?.(address);
  for (const selector of ["a.twin", ".same code"]) {
    const fresh = page.querySelectorAll(selector);
    document.querySelectorAll(selector).forEach((old, n) => fresh[n] && old.replaceWith(fresh[n]));
  }
  fit();
  focus?.(found)?.focus({ preventScroll: true });
}

const push = (address) => history.pushState(null, "", address);
const replace = (address) => history.replaceState(null, "", address);

// A link to the same page, of another state.
function onClick(event) {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("[data-part] a");
  const href = link?.getAttribute("href");
  if (!href) return;
  const address = new URL(href, location.href);
  if (address.pathname !== location.pathname) return;
  event.preventDefault();
  const place = link.closest("tr")?.dataset.place;
  const name = link.querySelector("title")?.textContent;
  show(address, push, (part) =>
    place
      ? part.querySelector(`tr[data-place="${CSS.escape(place)}"] a`)
      : [...part.querySelectorAll("a")].find((other) => other.querySelector("title")?.textContent === name),
  );
}

// What is written is looked for at once.
function look(input) {
  const address = new URL(location.href);
  if (input.value) address.searchParams.set("q", input.value);
  else address.searchParams.delete("q");
  if (address.href !== location.href) show(address, replace);
}

// Names that have no room end in dots; the title has them whole.
const pen = document.createElement("canvas").getContext("2d");
function fit() {
  const texts = [...document.querySelectorAll("svg.flame text")];
  if (texts.length === 0) return;
  const style = getComputedStyle(texts[0]);
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const wide = pen.measureText("mmmmmmmmmmnnnnnnnnnneeeeeeeeee______").width / 36;
  const rooms = texts.map((text) => text.previousElementSibling.getBoundingClientRect().width - 8);
  texts.forEach((text, n) => {
    const name = (text.dataset.name ??= text.textContent);
    const room = rooms[n];
    let shown = name;
    if (pen.measureText(name).width > room) {
      let length = Math.min(name.length, Math.ceil((room / wide) * 1.6));
      while (length > 0 && pen.measureText(`${name.slice(0, length)}…`).width > room) length -= 1;
      shown = length > 1 ? `${name.slice(0, length)}…` : "";
    }
    if (text.textContent !== shown) text.textContent = shown;
  });
}

function start() {
  document.addEventListener("click", onClick);
  addEventListener("popstate", () => show(new URL(location.href)));
  addEventListener("resize", fit);
  let timer = 0;
  document.querySelectorAll("input[data-live]").forEach((input) => {
    input.form.querySelector("button").hidden = true;
    input.form.addEventListener("submit", (event) => {
      event.preventDefault();
      look(input);
    });
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => look(input), 150);
    });
    addEventListener("popstate", () => (input.value = new URLSearchParams(location.search).get("q") ?? ""));
  });
  fit();
}

// In a file of pages, links are the file's own.
document.addEventListener("page", fit);
if (document.querySelector("[data-part]") && !document.getElementById("pages")) start();
