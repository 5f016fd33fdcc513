// What gate.sh runs of Clipper2: stars and grids united, cut, grown and shrunk.
#include <cmath>
#include <cstdio>
#include "clipper2/clipper.h"
using namespace Clipper2Lib;
static Path64 star(int x, int y, int n, int r) {
  Path64 p;
  for (int i = 0; i < 2 * n; i++) {
    double a = M_PI * i / n, d = i % 2 ? r : r * 0.4;
    p.push_back(Point64(x + std::lround(d * std::cos(a)), y + std::lround(d * std::sin(a))));
  }
  return p;
}
int main() {
  Paths64 a, b;
  for (int i = 0; i < 90; i++) a.push_back(star(i * 7919 % 4000, i * 104729 % 4000, 5 + i % 6, 200 + i * 5));
  for (int i = 0; i < 40; i++) b.push_back(MakePath({i * 100, 0, i * 100 + 40, 0, i * 100 + 40, 4000, i * 100, 4000}));
  Paths64 u = Union(a, FillRule::NonZero), x = Intersect(u, b, FillRule::EvenOdd), d = Difference(b, u, FillRule::NonZero), o = Xor(u, b, FillRule::EvenOdd);
  Paths64 grown = InflatePaths(u, 25, JoinType::Round, EndType::Polygon), shrunk = InflatePaths(x, -8, JoinType::Miter, EndType::Polygon);
  Paths64 lines = InflatePaths(Paths64{a[3], a[9]}, 12, JoinType::Square, EndType::Round);
  PolyTree64 tree;
  Clipper64 c;
  c.AddSubject(a);
  c.AddClip(b);
  Paths64 open;
  c.Execute(ClipType::Difference, FillRule::EvenOdd, tree, open);
  Paths64 flat = PolyTreeToPaths64(tree), simple = SimplifyPaths(grown, 3.0);
  for (const Paths64 *p : {&u, &x, &d, &o, &grown, &shrunk, &lines, &flat, &simple}) std::printf("%zu %.1f\n", p->size(), Area(*p));
}
