// What gate.sh runs of zstd: FILE compressed at several levels, whole and in pieces, and decompressed again.
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>
int main(int argc, char **argv) {
  FILE *f = fopen(argv[argc - 1], "rb");
  size_t n = 300000, room = ZSTD_compressBound(n);
  char *in = malloc(n), *out = malloc(room), *back = malloc(n);
  n = fread(in, 1, n, f);
  static const int levels[] = {-3, 1, 3, 6, 12, 17};
  for (int i = 0; i < 6; i++) {
    size_t size = ZSTD_compress(out, room, in, n, levels[i]);
    printf("%d: %zu %zu\n", levels[i], size, ZSTD_decompress(back, n, out, size));
  }
  ZSTD_CCtx *c = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, 4);
  ZSTD_outBuffer o = {out, room, 0};
  for (size_t at = 0; at < n; at += 7000) {
    ZSTD_inBuffer b = {in + at, n - at < 7000 ? n - at : 7000, 0};
    ZSTD_compressStream2(c, &o, &b, at % 21000 ? ZSTD_e_continue : ZSTD_e_flush);
  }
  ZSTD_inBuffer none = {in, 0, 0};
  ZSTD_compressStream2(c, &o, &none, ZSTD_e_end);
  printf("in pieces: %zu %zu\n", o.pos, ZSTD_decompress(back, n, out, o.pos));
  out[100] ^= 0x10;
  printf("damaged: %s\n", ZSTD_getErrorName(ZSTD_decompress(back, n, out, o.pos)));
}
