// What script adds to all pages, which work without it: keys.

// Keys: what has `data-key` is clicked, or takes the next keys if one can write in it.
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const writes = event.target.matches?.("input:not([type=checkbox], [type=radio]), textarea, select");
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

function start() {
  document.addEventListener("keydown", onKey);
  const keys = document.getElementById("keys");
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("button.keys")) keys.showModal();
  });
  const show = () => document.querySelectorAll("button.keys").forEach((button) => (button.hidden = false));
  document.addEventListener("page", show);
  show();
}

start();
