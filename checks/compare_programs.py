"""Programs that compare_runs.py builds and runs: scripts of lua and awk, C++ with exceptions, Rust, threads."""

LUA = """
local t, seen = {}, {}
for i = 1, 3000 do t["name" .. (i * 7919) % 1009] = i; seen[i % 97] = (seen[i % 97] or "") .. i end
local n, keys = 0, {}
for k, v in pairs(t) do n = n + #k * v; keys[#keys + 1] = k end
table.sort(keys)
local function fib(k) if k < 2 then return k end return fib(k - 1) + fib(k - 2) end
local object = setmetatable({}, {__index = function(_, k) return k * 2 end})
for i = 1, 2000 do n = n + object[i] end
for i = 1, 200 do if not pcall(error, "no " .. i) then n = n + 1 end end
local co = coroutine.wrap(function() for i = 1, 300 do coroutine.yield(i) end return 0 end)
for i = 1, 300 do n = n + co() end
local s = table.concat(keys, ",")
for w in s:gmatch("[^,]+") do n = n + #w:gsub("a", "xy") end
print(n, fib(18), #s, #seen[3])
"""
FIB = """
local function fib(k) if k < 2 then return k end return fib(k - 1) + fib(k - 2) end
print(fib(35))
"""
AWK = """
function weigh(word,    i, n) { for (i = 1; i <= length(word); i++) n += index("etaoin", substr(word, i, 1)); return n }
{ for (i = 1; i <= NF; i++) { seen[$i]++; if (length($i) < 12) sum += weigh($i) } gsub(/[a-f]+/, "<&>"); kept += length($0) }
/^ *(if|for|while)/ { split($0, parts, /[ ()]+/); heads[parts[2]]++ }
END { for (word in seen) if (seen[word] > 50) many++; printf "%d %d %d %s\\n", sum, kept, many, toupper(substr("done", 1, 2)) }
"""
JSON = """
#include "nlohmann/json.hpp"
#include <cstdio>
using nlohmann::json;
struct Depth { static int open; Depth() { open++; } ~Depth() { open--; } };
int Depth::open = 0;
static int deep(int n) {
    Depth here;
    if (n == 0) throw std::runtime_error("deep");
    return deep(n - 1) + 1;
}
static long weigh(const json& of) {
    long sum = 1;
    if (of.is_object()) for (auto& [key, value] : of.items()) sum += key.size() + weigh(value);
    else if (of.is_array()) for (auto& value : of) sum += weigh(value);
    else if (of.is_number()) sum += of.get<long>() % 10;
    return sum;
}
int main() {
    long sum = 0, failed = 0;
    for (int i = 0; i < 120; i++) {
        json made = {{"id", i}, {"name", "n" + std::to_string(i)}, {"list", json::array()}, {"in", {{"a", i * 7}, {"b", nullptr}}}};
        for (int k = 0; k < i % 13; k++) made["list"].push_back(k * 1.5);
        std::string text = made.dump(i % 3);
        if (i % 4 == 1) text[text.size() / 2] = '}';
        try {
            json back = json::parse(text);
            sum += weigh(back) + text.size();
            if (i % 3 == 0) sum += back.at("none").get<int>();
        } catch (const json::parse_error& e) {
            failed += e.byte;
        } catch (const json::out_of_range&) {
            failed += 1000;
        }
        try {
            try { sum += deep(i % 9); } catch (const std::runtime_error&) { failed++; throw; }
        } catch (...) { failed += Depth::open; }
    }
    std::printf("%ld %ld\\n", sum, failed);
}
"""
RUST = """
use std::collections::{BTreeMap, HashMap, hash_map::DefaultHasher};
use std::hash::BuildHasherDefault;
use std::fmt::Write;
trait Shape { fn area(&self) -> f64; fn name(&self) -> String { "shape".to_owned() } }
struct Circle(f64);
struct Boxed { w: f64, h: f64 }
impl Shape for Circle { fn area(&self) -> f64 { self.0 * self.0 * 3.14159 } fn name(&self) -> String { format!("circle {}", self.0) } }
impl Shape for Boxed { fn area(&self) -> f64 { self.w * self.h } }
#[derive(Debug, Clone, PartialEq)]
enum Token { Number(i64), Op(char), Open, Close }
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(&c) = rest.peek() {
        match c {
            '0'..='9' => {
                let mut n = 0;
                while let Some(d) = rest.peek().and_then(|c| c.to_digit(10)) { n = n * 10 + i64::from(d); rest.next(); }
                found.push(Token::Number(n));
            }
            '+' | '-' | '*' => { found.push(Token::Op(c)); rest.next(); }
            '(' => { found.push(Token::Open); rest.next(); }
            ')' => { found.push(Token::Close); rest.next(); }
            ' ' => { rest.next(); }
            other => return Err(format!("no {other:?} here")),
        }
    }
    Ok(found)
}
struct Parser<'a> { of: &'a [Token], at: usize }
impl Parser<'_> {
    fn next(&mut self) -> Option<&Token> { let t = self.of.get(self.at); self.at += 1; t }
    fn sum(&mut self) -> Option<i64> {
        let mut left = self.product()?;
        while let Some(Token::Op(op @ ('+' | '-'))) = self.of.get(self.at).cloned() {
            self.at += 1;
            let right = self.product()?;
            left = if op == '+' { left.wrapping_add(right) } else { left.wrapping_sub(right) };
        }
        Some(left)
    }
    fn product(&mut self) -> Option<i64> {
        let mut left = self.single()?;
        while self.of.get(self.at) == Some(&Token::Op('*')) { self.at += 1; left = left.wrapping_mul(self.single()?); }
        Some(left)
    }
    fn single(&mut self) -> Option<i64> {
        match self.next()?.clone() {
            Token::Number(n) => Some(n),
            Token::Open => { let n = self.sum(); (self.next() == Some(&Token::Close)).then_some(n?) }
            _ => None,
        }
    }
}
fn main() {
    let mut seed = 12345u64;
    let mut random = move |n: u64| { seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (seed >> 33) % n };
    let shapes: Vec<Box<dyn Shape>> = (0..300u32).map(|i| -> Box<dyn Shape> {
        if i % 3 == 0 { Box::new(Circle(f64::from(i))) } else { Box::new(Boxed { w: f64::from(i), h: 2.0 }) }
    }).collect();
    let area: f64 = shapes.iter().map(|s| s.area()).sum();
    let names: usize = shapes.iter().map(|s| s.name().len()).sum();
    let (mut sum, mut bad) = (0i64, 0);
    for i in 0..400 {
        let mut text = String::new();
        for k in 0..random(12) + 1 {
            let _ = write!(text, "{}{}", if k > 0 { ["+", "-", "*", " * "][random(4) as usize] } else { "" }, random(1000));
            if random(9) == 0 { text = format!("({text})"); }
        }
        if i % 17 == 0 { text.push('?'); }
        match tokens(&text) {
            Ok(found) => match (Parser { of: &found, at: 0 }).sum() { Some(n) => sum = sum.wrapping_add(n), None => bad += 1 },
            Err(why) => bad += why.len(),
        }
    }
    let mut words: HashMap<String, usize, BuildHasherDefault<DefaultHasher>> = HashMap::default();
    let mut sorted = BTreeMap::new();
    for _ in 0..3000 {
        let word = format!("w{}", random(500));
        *words.entry(word.clone()).or_default() += 1;
        sorted.entry(word).or_insert_with(Vec::new).push(random(100));
    }
    let mut all: Vec<_> = words.iter().collect();
    all.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let deepest = sorted.values_mut().map(|v| { v.sort_unstable(); v.dedup(); v.len() }).max();
    println!("{area} {names} {sum} {bad} {:?} {deepest:?}", all.first());
}
"""
REGEX = r"""
fn main() {
    let mut code = String::new();
    std::io::Read::read_to_string(&mut std::io::stdin(), &mut code).expect("text");
    code.truncate(30000);
    let (mut n, mut nodes) = (0, 0);
    for pattern in ["[a-z_]+\\(", "(?i)if|else|while", "[0-9]+(\\.[0-9]+)?", "\\b(lua|L)\\w*\\b", "/\\*.*?\\*/", "(a|b)*c{2,5}("] {
        match regex_syntax::parse(pattern) {
            Ok(hir) => nodes += format!("{hir:?}").len(),
            Err(why) => nodes += why.to_string().len(),
        }
        let Ok(regex) = regex_lite::Regex::new(pattern) else { continue };
        for line in code.lines() { n += regex.find_iter(line).map(|found| found.as_str().len()).sum::<usize>(); }
    }
    for class in ["\\p{Greek}", "[\\p{L}--\\p{Lu}]", "\\w&&\\d", "(?i-u:k)", "[^\\PN]"] {
        nodes += regex_syntax::parse(class).map_or(1, |hir| format!("{hir:?}").len());
    }
    println!("{n} {nodes}");
}
"""
WORK = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#define N 8
/* What compilers make of recursion differs too much for threads to show. */
#define ALONE __attribute__((noinline, noclone))
typedef struct { unsigned seed; long sum; void (*work)(void *); } Job;
static unsigned next(Job *job) { return job->seed = job->seed * 1103515245u + 12345u, job->seed >> 8; }
static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static void swap(int *a, int *b) { int t = *a; *a = *b; *b = t; }
static void heap_down(int *a, int n, int i) {
    for (int k; (k = 2 * i + 1) < n; i = k) { if (k + 1 < n && a[k + 1] > a[k]) k++; if (a[i] >= a[k]) return; swap(a + i, a + k); }
}
static void sorts(void *of) {
    Job *job = of; int a[2000];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++) a[i] = next(job) % 10000;
        for (int i = 999; i >= 0; i--) heap_down(a, 2000, i);
        for (int n = 1999; n > 0; n--) { swap(a, a + n); heap_down(a, n, 0); }
        job->sum += a[100];
    }
}
static int is_prime(unsigned n) { for (unsigned d = 2; d * d <= n; d++) if (n % d == 0) return 0; return n > 1; }
static void primes(void *of) { Job *job = of; for (unsigned n = 0; n < 6000; n++) job->sum += is_prime(n); }
typedef struct Node { struct Node *left, *right; unsigned key; } Node;
ALONE static Node *insert(Node *at, unsigned key) {
    if (!at) { at = calloc(1, sizeof *at); at->key = key; return at; }
    if (key < at->key) at->left = insert(at->left, key); else if (key > at->key) at->right = insert(at->right, key);
    return at;
}
ALONE static long weigh(Node *at, int depth) {
    if (!at) return 0;
    long n = depth + weigh(at->left, depth + 1) + weigh(at->right, depth + 1);
    free(at);
    return n;
}
static void trees(void *of) {
    Job *job = of; Node *root = 0;
    for (int i = 0; i < 3000; i++) root = insert(root, next(job) % 5000);
    job->sum = weigh(root, 0);
}
ALONE static long fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static void fibs(void *of) { Job *job = of; for (int n = 10; n < 20; n++) job->sum += fib(n); }
static unsigned hash(const char *s) { unsigned h = 5381; while (*s) h = h * 33 + (unsigned char)*s++; return h; }
static void strings(void *of) {
    Job *job = of; char name[32]; static __thread unsigned table[1024];
    for (int i = 0; i < 3000; i++) { snprintf(name, sizeof name, "n%u", next(job) % 700); unsigned h = hash(name) % 1024; table[h]++; }
    for (int i = 0; i < 1024; i++) job->sum += table[i] > 3;
}
static double dot(double (*a)[40], double (*b)[40], int i, int j) { double s = 0; for (int k = 0; k < 40; k++) s += a[i][k] * b[k][j]; return s; }
static void matrices(void *of) {
    Job *job = of; double a[40][40], b[40][40];
    for (int i = 0; i < 40; i++) for (int j = 0; j < 40; j++) a[i][j] = next(job) % 7, b[i][j] = next(job) % 5;
    for (int i = 0; i < 40; i++) for (int j = 0; j < 40; j++) job->sum += (long)dot(a, b, i, j);
}
static int steps(unsigned long n) { int k = 0; while (n != 1) n = n % 2 ? 3 * n + 1 : n / 2, k++; return k; }
static void collatz(void *of) { Job *job = of; for (unsigned n = 1; n < 3000; n++) job->sum += steps(n); }
ALONE static int queens(int row, int columns, int left, int right) {
    int n = 0;
    if (row == 8) return 1;
    for (int c = 0; c < 8; c++)
        if (!(columns >> c & 1) && !(left >> (row + c) & 1) && !(right >> (row - c + 8) & 1))
            n += queens(row + 1, columns | 1 << c, left | 1 << (row + c), right | 1 << (row - c + 8));
    return n;
}
static void boards(void *of) { Job *job = of; job->sum = queens(0, 0, 0, 0); }
static Job jobs[N] = {{1, 0, sorts}, {2, 0, primes}, {3, 0, trees}, {4, 0, fibs}, {5, 0, strings}, {6, 0, matrices}, {7, 0, collatz}, {8, 0, boards}};
#ifdef REVERSED
#define ORDER(i) (N - 1 - (i))
#else
#define ORDER(i) (i)
#endif
static void report(void) { for (int i = 0; i < N; i++) printf("%d %ld\\n", i, jobs[i].sum); }
"""
PTHREADS = """
#include <pthread.h>
static void *any(void *of) { Job *job = of; job->work(job); return 0; }
#define OWN(name) static void *run_##name(void *of) { name(of); return 0; }
OWN(sorts) OWN(primes) OWN(trees) OWN(fibs) OWN(strings) OWN(matrices) OWN(collatz) OWN(boards)
int main(void) {
    void *(*start[N])(void *) = {run_sorts, run_primes, run_trees, run_fibs, run_strings, run_matrices, run_collatz, run_boards};
    pthread_t thread[N];
    for (int i = 0; i < N; i++) {
#if defined ONE
        jobs[i].work(&jobs[i]);
#elif defined ALIKE
        pthread_create(&thread[i], 0, any, &jobs[ORDER(i)]);
#else
        pthread_create(&thread[i], 0, start[ORDER(i)], &jobs[ORDER(i)]);
#endif
    }
#ifndef ONE
    for (int i = 0; i < N; i++) pthread_join(thread[i], 0);
#endif
    report();
}
"""
OPENMP = """
#include <omp.h>
int main(void) {
    double field[512];
    for (int round = 0; round < 3; round++) {
#pragma omp parallel for num_threads(N) schedule(static, 1)
        for (int i = 0; i < N; i++) jobs[ORDER(i)].work(&jobs[ORDER(i)]);
#pragma omp parallel for num_threads(N) schedule(static)
        for (int i = 0; i < 512; i++) field[i] = steps(i + 1) + sqrt(i + round);
    }
    double sum = 0;
    for (int i = 0; i < 512; i++) sum += field[i];
    report();
    printf("%.3f\\n", sum);
}
"""
