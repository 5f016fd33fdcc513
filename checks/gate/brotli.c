// What gate.sh runs of brotli: FILE compressed at several qualities, and decompressed again.
#include <stdio.h>
#include <stdlib.h>
#include <brotli/decode.h>
#include <brotli/encode.h>
int main(int argc, char **argv) {
  FILE *f = fopen(argv[argc - 1], "rb");
  size_t n = 100000, room = 2 * n;
  uint8_t *in = malloc(n), *out = malloc(room), *back = malloc(n);
  n = fread(in, 1, n, f);
  static const int qualities[] = {0, 1, 3, 5, 9, 10};
  for (int i = 0; i < 6; i++) {
    size_t size = room, length = n;
    BrotliEncoderCompress(qualities[i], 20, i % 2 ? BROTLI_MODE_TEXT : BROTLI_MODE_GENERIC, n, in, &size, out);
    int rc = BrotliDecoderDecompress(size, out, &length, back);
    printf("%d: %zu %zu %d\n", qualities[i], size, length, rc);
  }
  out[50] ^= 0x40;
  size_t length = n;
  printf("damaged: %d\n", BrotliDecoderDecompress(3000, out, &length, back));
}
