// What gate.sh runs of PCRE2: patterns searched in FILE, by both matchers, and replaced.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pcre2.h>
int main(int argc, char **argv) {
  FILE *f = fopen(argv[argc - 1], "rb");
  PCRE2_UCHAR *in = malloc(150000), *out = malloc(400000);
  size_t n = fread(in, 1, 150000, f);
  static const char *patterns[] = {"lua[A-Z]\\w+", "(?i)error|fail(?:ure)?", "\\b(\\w+)\\s+\\1\\b", "(?m)^\\s*#\\s*define\\s+(\\w+)",
    "\"(?:[^\"\\\\]|\\\\.)*\"", "(?<=return )\\w+(?=;)", "[0-9]++(?:\\.[0-9]+)?", "(?s)/\\*.*?\\*/", "\\((?:[^()]|(?R))*\\)",
    "\\p{Lu}{3,}", "(a(b|c)*d", "x{5,2}y", "(?<name>if|while) \\((?!lua)[^)]+\\)"};
  for (int i = 0; i < 13; i++) {
    int error;
    size_t where, made = 400000, found = 0, sum = 0;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)patterns[i], PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &where, 0);
    if (!c) {
      pcre2_get_error_message(error, out, 256);
      printf("%s: %s at %zu\n", patterns[i], out, where);
      continue;
    }
    pcre2_match_data *m = pcre2_match_data_create_from_pattern(c, 0);
    for (size_t at = 0; at < n && pcre2_match(c, in, n, at, 0, m, 0) > 0; found++) {
      size_t *v = pcre2_get_ovector_pointer(m);
      sum += v[1] - v[0], at = v[1] + (v[1] == v[0]);
    }
    int space[1000], dfa = 0;
    if (i != 2 && i != 8)
      for (size_t at = 0; at < n / 4; at += 997) dfa += pcre2_dfa_match(c, in, n / 4, at, 0, m, 0, space, 1000) > 0;
    int replaced = pcre2_substitute(c, in, n / 8, 0, PCRE2_SUBSTITUTE_GLOBAL, 0, 0, (PCRE2_SPTR)"<$0>", 4, out, &made);
    printf("%s: %zu %zu %d %d %zu\n", patterns[i], found, sum, dfa, replaced, made);
    pcre2_match_data_free(m);
    pcre2_code_free(c);
  }
}
