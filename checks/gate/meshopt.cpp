// What gate.sh runs of meshoptimizer: a wavy grid, indexed, ordered, simplified, encoded and decoded.
#include <cmath>
#include <cstdio>
#include <vector>
#include "meshoptimizer.h"
struct Vertex { float x, y, z, u; };
int main() {
  const unsigned side = 60;
  std::vector<Vertex> soup;
  auto at = [](unsigned x, unsigned y) { return Vertex{float(x), float(y), std::floor(8 * std::sin(x * 0.3f) * std::cos(y * 0.2f)), float(x % 7)}; };
  for (unsigned y = 0; y < side; y++)
    for (unsigned x = 0; x < side; x++)
      for (auto [dx, dy] : {std::pair{0, 0}, {1, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 1}}) soup.push_back(at((x * 37 + dx) % side + (x * 37 % side == side - 1 ? dx * side : 0), y + dy));
  size_t n = soup.size();
  std::vector<unsigned> remap(n), indices(n);
  size_t nv = meshopt_generateVertexRemap(remap.data(), nullptr, n, soup.data(), n, sizeof(Vertex));
  std::vector<Vertex> v(nv);
  meshopt_remapVertexBuffer(v.data(), soup.data(), n, sizeof(Vertex), remap.data());
  meshopt_remapIndexBuffer(indices.data(), nullptr, n, remap.data());
  meshopt_optimizeVertexCache(indices.data(), indices.data(), n, nv);
  meshopt_optimizeOverdraw(indices.data(), indices.data(), n, &v[0].x, nv, sizeof(Vertex), 1.05f);
  meshopt_optimizeVertexFetch(v.data(), indices.data(), n, v.data(), nv, sizeof(Vertex));
  auto cache = meshopt_analyzeVertexCache(indices.data(), n, nv, 16, 0, 0);
  auto fetch = meshopt_analyzeVertexFetch(indices.data(), n, nv, sizeof(Vertex));
  std::vector<unsigned> strip(meshopt_stripifyBound(n)), back(n), fifo(n), shadow(n);
  size_t ns = meshopt_stripify(strip.data(), indices.data(), n, nv, ~0u);
  meshopt_optimizeVertexCacheFifo(fifo.data(), indices.data(), n, nv, 16);
  meshopt_generateShadowIndexBuffer(shadow.data(), indices.data(), n, v.data(), nv, 12, sizeof(Vertex));
  std::vector<unsigned char> ib(meshopt_encodeIndexBufferBound(n, nv)), vb(meshopt_encodeVertexBufferBound(nv, sizeof(Vertex)));
  size_t ni = meshopt_encodeIndexBuffer(ib.data(), ib.size(), indices.data(), n);
  size_t ne = meshopt_encodeVertexBuffer(vb.data(), vb.size(), v.data(), nv, sizeof(Vertex));
  int rc = meshopt_decodeIndexBuffer(back.data(), n, 4, ib.data(), ni);
  rc += meshopt_decodeVertexBuffer(v.data(), nv, sizeof(Vertex), vb.data(), ne);
  rc += meshopt_decodeIndexBuffer(back.data(), n, 4, ib.data(), ni / 2);
  std::printf("%zu %zu %zu %zu %zu %d %u %u\n", n, nv, ns, ni, ne, rc, cache.vertices_transformed, fetch.bytes_fetched);
}
