// What gate.sh runs of lz4: FILE compressed fast, well, and as frames, and decompressed again.
#include <stdio.h>
#include <stdlib.h>
#include <lz4.h>
#include <lz4frame.h>
#include <lz4hc.h>
int main(int argc, char **argv) {
  FILE *f = fopen(argv[argc - 1], "rb");
  int n = 1 << 20, room = LZ4_compressBound(n) + 1000;
  char *in = malloc(n), *out = malloc(room), *back = malloc(n);
  n = fread(in, 1, n, f);
  static const int fast[] = {1, 8, 40}, well[] = {2, 4, 9, 12};
  for (int i = 0; i < 3; i++) {
    int size = LZ4_compress_fast(in, out, n, room, fast[i]);
    printf("fast %d: %d %d\n", fast[i], size, LZ4_decompress_safe(out, back, size, n));
  }
  for (int i = 0; i < 4; i++) {
    int size = LZ4_compress_HC(in, out, n, room, well[i]);
    printf("well %d: %d %d\n", well[i], size, LZ4_decompress_safe_partial(out, back, size, n / 2, n));
  }
  LZ4F_preferences_t p = {0};
  p.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  p.frameInfo.blockMode = LZ4F_blockLinked;
  size_t size = LZ4F_compressFrame(out, room, in, n / 2, &p), used = size, made = n;
  LZ4F_dctx *d;
  LZ4F_createDecompressionContext(&d, LZ4F_VERSION);
  size_t rc = LZ4F_decompress(d, back, &made, out, &used, 0);
  printf("frame: %zu %zu %zu %zu\n", size, used, made, rc);
}
