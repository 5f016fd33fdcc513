// What gate.sh runs of zlib: FILE deflated at several levels and strategies, and inflated again.
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>
int main(int argc, char **argv) {
  FILE *f = fopen(argv[argc - 1], "rb");
  unsigned char *in = malloc(1 << 20), *out = malloc(2 << 20), *back = malloc(1 << 20);
  uLong n = fread(in, 1, 1 << 20, f);
  static const int levels[] = {0, 1, 3, 6, 9}, strategies[] = {Z_DEFAULT_STRATEGY, Z_FILTERED, Z_RLE, Z_HUFFMAN_ONLY};
  for (unsigned i = 0; i < 5; i++)
    for (unsigned j = 0; j < (i == 3 ? 4 : 1); j++) {
      z_stream z = {0};
      deflateInit2(&z, levels[i], Z_DEFLATED, 15, 8, strategies[j]);
      z.next_in = in, z.avail_in = n, z.next_out = out, z.avail_out = 2 << 20;
      deflate(&z, Z_FINISH);
      uLong size = z.total_out, length = 1 << 20;
      deflateEnd(&z);
      int rc = uncompress(back, &length, out, size);
      printf("%d %d: %lu %lu %d %lx\n", levels[i], strategies[j], size, length, rc, adler32(crc32(0, back, length), out, size));
    }
  out[77] ^= 0x55;
  uLong length = 1 << 20;
  printf("damaged: %d\n", uncompress(back, &length, out, 5000));
}
