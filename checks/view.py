#!/usr/bin/env python3
"""How long pages of `engraft view` take, and what a hostile client comes to.

    checks/view.py SQLITE3.C [ROW...]

ROW: 5 (a million rows: the server, then Chromium), 7 (flow graphs: one of some 300 blocks drawn whole, the largest
of sqlite), 10 (a million random requests), 12 (from the start to the first page: counts of sqlite, and a comparison
of two traces of RUN_SECONDS (5) that was made before) [all].
ENGRAFT: the command [target/release/engraft]. Needs cargo, gcc; for row 5 chromedriver and chromium.
Prints milliseconds with the bar beside each; exit 1 if one is missed."""
import sys

# Files beside this one are called as modules of Python are.
sys.path.pop(0)
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

TOP = os.path.realpath(os.path.dirname(__file__) + "/..")
ENGRAFT = os.path.realpath(os.environ.get("ENGRAFT", TOP + "/target/release/engraft"))
RUN_SECONDS = float(os.environ.get("RUN_SECONDS", "5"))
missed = []

DRIVER = """
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>
int main(int c, char **v) {
  int rounds = c > 1 ? atoi(v[1]) : 1, failed = 0;
  for (int n = 0; n < rounds; n++) {
    sqlite3 *db; sqlite3_open(":memory:", &db);
    failed |= sqlite3_exec(db, "create table t(a,b,c); with recursive n(i) as (select 1 union all select i+1 from n "
      "where i<3000) insert into t select i, i*7%1000, 'x'||i from n; create index ti on t(b); select sum(a),avg(b),"
      "count(distinct c) from t where b between 10 and 500 group by b%10 order by 2; update t set a=a+1 where b<100; "
      "delete from t where b>900; select t.a, u.b from t join t u on t.b=u.a where u.c like 'x1%' order by 1 limit 20;",
      0, 0, 0);
    sqlite3_close(db);
  }
  printf("%d\\n", failed);
  return failed;
}
"""


def said(row, what, ms, bar):
    """Prints a figure, and notes one that misses its bar."""
    fits = ms <= bar
    if not fits:
        missed.append(what)
    print(f"{row}\t{what}\t{ms:.1f} ms\t<= {bar} ms\t{'' if fits else 'MISSED'}", flush=True)


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


class Served:
    """What prints its address first, and serves until it is ended."""

    def __init__(self, *words, cwd=None):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd)
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.address

    def get(self, page):
        return urllib.request.urlopen(self.address + page).read()

    def end(self):
        self.process.terminate()
        self.process.wait()


def times(does, n=5):
    """The median of how long it takes, in milliseconds, once it was done before."""
    taken = []
    for _ in range(n + 1):
        start = time.monotonic()
        does()
        taken.append((time.monotonic() - start) * 1000)
    return statistics.median(taken[1:])


class Browser:
    """Chromium, by chromedriver."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = next(m for m in (re.search(r"on port (\d+)\.$", line.strip()) for line in self.driver.stdout) if m)[1]
        self.at = f"http://127.0.0.1:{port}/session"
        args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"]
        options = {"browserName": "chrome", "goog:chromeOptions": {"args": args}}
        self.at += "/" + self.ask("", {"capabilities": {"alwaysMatch": options}})["sessionId"]

    def ask(self, path, body):
        request = urllib.request.Request(self.at + path, json.dumps(body).encode())
        return json.load(urllib.request.urlopen(request))["value"]

    def open(self, address):
        self.ask("/url", {"url": address})

    def later(self, script):
        """What the script gives to `done`."""
        script = "const done = arguments[arguments.length - 1];" + script
        return self.ask("/execute/async", {"script": script, "args": []})

    def end(self):
        try:
            urllib.request.urlopen(urllib.request.Request(self.at, method="DELETE"))
        finally:
            self.driver.terminate()
            self.driver.wait()


# Does something, and waits until a condition holds and two frames were drawn; gives milliseconds.
TIMED = """
const start = performance.now();
const look = () => {
  if (!(%s)) return setTimeout(look, 1);
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
};
%s; look();
"""


def a_million_rows():
    cargo = ["cargo", "build", "-q", "--release", "-p", "viewer", "--example", "rows"]
    subprocess.run(cargo, cwd=TOP, check=True)
    target = json.loads(run("cargo", "metadata", "--format-version", "1", "--no-deps", cwd=TOP))["target_directory"]
    example = target + "/release/examples/rows"
    for line in run(example).splitlines():
        ms, what, _ = line.split("\t")
        said(5, "server: " + what, float(ms), 50 if "first page" in what else 200)
    served, browser = Served(example, "1000000", "serve"), Browser()
    page = served.address + "0/functions"
    loaded = "const n = performance.getEntriesByType('navigation')[0]; done(n.domContentLoadedEventEnd - n.startTime)"
    try:
        for what, query in [("first page", ""), ("sort", "?sort=entries"), ("sort by name", "?sort=function")]:
            browser.open(page + query)
            # The browser's own start of a page is in it.
            said(5, "browser: " + what, browser.later(loaded), 500)
        browser.open(page)
        found = "document.querySelector('.found').textContent.includes(' of ')"
        types = ("const input = document.querySelector('input[name=q]'); input.value = 'function_77';"
                 "input.dispatchEvent(new Event('input'))")
        said(5, "browser: filter, from the last key on", browser.later(TIMED % (found, types)), 200)
        browser.open(page)
        last = "[...document.querySelectorAll('tr[data-place]')].pop().dataset.place === '1000000'"
        seen = last + " && [...document.querySelectorAll('tr[data-place]')].pop().getBoundingClientRect().bottom <= innerHeight"
        scrolls = "scrollTo(0, document.documentElement.scrollHeight)"
        said(5, "browser: scroll to the end", browser.later(TIMED % (last, scrolls)), 200)
        said(5, "browser: its last row is seen", browser.later(TIMED % (seen, scrolls)), 200)
        before = "Math.abs(document.querySelector('tr[data-place]').dataset.place - 500000) < 2000"
        middle = "scrollTo(0, document.documentElement.scrollHeight / 2)"
        said(5, "browser: to the middle", browser.later(TIMED % (before, middle)), 200)
    finally:
        browser.end()
        served.end()


def build(source, folder, name, *flags):
    with open(folder + "/driver.c", "w") as out:
        out.write(DRIVER)
    include = "-I" + os.path.dirname(os.path.realpath(source))
    run("gcc", "-g", *flags, include, folder + "/driver.c", source, "-o", f"{folder}/{name}", "-lm", "-lpthread", "-ldl")


def counts_of_sqlite(source, folder):
    if not os.path.exists(folder + "/sqlite.engraft"):
        build(source, folder, "sqlite", "-O2")
        run(ENGRAFT, "count", "-q", "--modules", "exe", "-o", "sqlite.engraft", "--", "./sqlite", cwd=folder)


def graphs(source, folder):
    counts_of_sqlite(source, folder)
    ran = json.loads(run(ENGRAFT, "show", "sqlite.engraft", "--json", cwd=folder))["functions"]
    listed = json.loads(run(ENGRAFT, "show", "sqlite", "functions", "--json", cwd=folder))["functions"]
    n_blocks = {f["name"]: f["n_blocks"] for f in listed}
    n_blocks = {f["name"]: n_blocks.get(f["name"], 0) for f in ran}
    largest = max(n_blocks, key=n_blocks.get)
    some = min(n_blocks, key=lambda name: abs(n_blocks[name] - 300))
    served = Served(ENGRAFT, "view", "--no-open", "sqlite.engraft", cwd=folder)
    try:
        for name, bar in [(some, 100), (largest, 1000)]:
            query = "?name=" + urllib.parse.quote(name)
            for how, more in [("folded", ""), ("block by block", "&whole=1")]:
                what = f"{name}, {n_blocks[name]} blocks, {how}"
                said(7, "graph of " + what, times(lambda: served.get("0/graph" + query + more)), bar)
            said(7, f"page of {name}, folded", times(lambda: served.get("0/function" + query)), max(bar, 200))
    finally:
        served.end()


def random_requests():
    words = ["cargo", "test", "-q", "--release", "-p", "viewer", "--test", "mutations", "--", "--nocapture"]
    ran = subprocess.run(words, cwd=TOP, capture_output=True, text=True, env={**os.environ, "ENGRAFT_MUTATIONS": "1000000"})
    found = re.search(r"\d+ requests, .* MB", ran.stderr)
    print(f"10\t{found[0] if found else ''}\t\t<= 100 MB\t{'' if ran.returncode == 0 else 'MISSED'}", flush=True)
    if ran.returncode != 0:
        missed.append("random requests")
        print(ran.stdout[-2000:], ran.stderr[-2000:], file=sys.stderr)


def first_page(folder, recording, bar):
    def start():
        served = Served(ENGRAFT, "view", "--no-open", recording, cwd=folder)
        try:
            assert b"data-place" in served.get("0/functions")
        finally:
            served.end()

    said(12, f"from the start to the first page, {recording}", times(start), bar)


def starts(source, folder):
    counts_of_sqlite(source, folder)
    first_page(folder, "sqlite.engraft", 500)
    one = times(lambda: run(folder + "/sqlite", "5"), 1) / 5000
    rounds = str(max(1, int(RUN_SECONDS / one)))
    for name, flags in [("old", "-O1"), ("new", "-O2")]:
        build(source, folder, name, flags)
        run(ENGRAFT, "trace", "-q", "--modules", "exe", "-o", name + ".trace", "--", "./" + name, rounds, cwd=folder)
        run(ENGRAFT, "trace", "pack", "-q", name + ".trace", "-o", name + "-packed.trace", cwd=folder)
    subprocess.run([ENGRAFT, "compare", "-q", "old-packed.trace", "new-packed.trace", "-o", "both.engraft"], cwd=folder,
                   stdout=subprocess.DEVNULL)
    first_page(folder, "both.engraft", 1000)


def main():
    words = sys.argv[1:]
    if not words or not os.path.exists(words[0]):
        sys.exit(__doc__)
    source, rows = os.path.realpath(words[0]), words[1:] or ["5", "7", "10", "12"]
    with tempfile.TemporaryDirectory() as folder:
        does = {
            "5": a_million_rows,
            "7": lambda: graphs(source, folder),
            "10": random_requests,
            "12": lambda: starts(source, folder),
        }
        for row in rows:
            does[row]()
    if missed:
        sys.exit("view.py: missed: " + "; ".join(missed))


main()
