// A little of everything: objects, closures, strings, regular expressions, exceptions, generators, sorting.
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
class Point { constructor(x, y) { this.x = x; this.y = y; } get norm() { return Math.sqrt(this.x * this.x + this.y * this.y); } }
class Named extends Point { constructor(x, y, n) { super(x, y); this.n = n; } toString() { return `${this.n}(${this.x},${this.y})`; } }
function* count(n) { for (let i = 0; i < n; i++) yield i * i; }
const words = [];
for (let i = 0; i < 1500; i++) words.push("w" + ((i * 7919) % 1009) + (i % 3 ? "a" : "bc"));
words.sort();
const seen = new Map();
for (const w of words) seen.set(w.slice(0, 3), (seen.get(w.slice(0, 3)) || 0) + 1);
let text = words.join(" ");
let hits = text.match(/w(\d+)bc\b/g).length, swapped = text.replace(/(\d)(\d)/g, "$2$1").length;
let sum = 0, caught = 0;
for (const v of count(800)) sum += v % 17;
for (let i = 0; i < 400; i++) try { if (i % 5 == 0) throw new RangeError("no " + i); sum += new Named(i, i + 1, "p").toString().length; } catch (e) { caught += e.message.length; }
const data = JSON.parse(JSON.stringify({ a: words.slice(0, 200), b: { c: [1.5, 2e10, null, true], d: "é\n" } }));
const typed = new Float64Array(500).map((_, i) => Math.sin(i)).reduce((a, b) => a + b);
const { a: [first, ...rest], b: { d } } = data;
print([fib(17), hits, swapped, sum, caught, seen.size, first, rest.length, d.length, typed.toFixed(6), (12345678901234567890n ** 5n).toString().length].join());
print(Object.entries({ x: 1, y: [2, 3] }).flat().map(String).reverse().join("|") + parseInt("7f", 16) + new Date(0).toISOString());
