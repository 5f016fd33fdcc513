// The graph and the code of a function: what is pointed at, or has the focus, in one of both is marked in the
// other. Without script, links lead from a block to its node, and back.

let box = null;
let picture = null;
let nodes = new Map();
let marked = [];

function mark(elements) {
  marked.forEach((element) => element.classList.remove("marked"));
  marked = elements;
  marked.forEach((element) => element.classList.add("marked"));
}

// The node that `target` is in, and its blocks; or the block, and its node.
function around(target) {
  const node = target.closest?.("a[data-blocks]");
  if (node) {
    const blocks = node.dataset.blocks.split(" ").map((number) => document.getElementById(`b${number}`));
    return [node, ...blocks.filter((block) => block !== null)];
  }
  const block = target.closest?.("tbody[data-node]");
  const its = block && nodes.get(block.dataset.node);
  return its ? [block, its] : [];
}

function pointed(event) {
  mark(around(event.target));
}

// How large it is drawn: what is in the middle stays there.
let scale = 1;

function zoom(to) {
  const { width, height } = picture.viewBox.baseVal;
  const next = Math.min(Math.max(to, 0.02), 4);
  const middle = [box.scrollLeft + box.clientWidth / 2, box.scrollTop + box.clientHeight / 2];
  picture.setAttribute("width", width * next);
  picture.setAttribute("height", height * next);
  box.scrollLeft = (middle[0] * next) / scale - box.clientWidth / 2;
  box.scrollTop = (middle[1] * next) / scale - box.clientHeight / 2;
  scale = next;
}

function zoomed(event) {
  const by = event.currentTarget.dataset.zoom;
  const { width, height } = picture.viewBox.baseVal;
  if (by === "fit") zoom(Math.min(box.clientWidth / width, (innerHeight * 0.8) / height, 1));
  else if (by === "1to1") zoom(1);
  else zoom(scale * Number(by));
}

// Where control enters is seen first, unless the address says something else.
function showEntry() {
  const entry = document.getElementById("b0")?.dataset.node;
  const node = nodes.get(entry)?.getBoundingClientRect();
  if (!node || location.hash.startsWith("#g")) return;
  box.scrollLeft += node.left + node.width / 2 - box.getBoundingClientRect().left - box.clientWidth / 2;
}

function start() {
  box = document.querySelector(".graph");
  picture = box?.querySelector("svg");
  nodes = new Map([...document.querySelectorAll(".graph a[data-blocks]")].map((node) => [node.id, node]));
  marked = [];
  scale = 1;
  document.querySelectorAll(".graph, .insns").forEach((element) => {
    element.addEventListener("mouseover", pointed);
    element.addEventListener("focusin", pointed);
    element.addEventListener("mouseleave", () => mark([]));
    element.addEventListener("focusout", () => mark([]));
  });
  if (!picture) return;
  document.querySelector(".zoom").hidden = false;
  document.querySelectorAll(".zoom button").forEach((button) => button.addEventListener("click", zoomed));
  showEntry();
}

document.addEventListener("page", start);
start();
