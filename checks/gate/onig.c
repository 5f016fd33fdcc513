// What gate.sh runs of Oniguruma: patterns searched in FILE.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <oniguruma.h>
int main(int argc, char **argv) {
  FILE *f = fopen(argv[argc - 1], "rb");
  UChar *in = malloc(200000), *end = in + fread(in, 1, 200000, f);
  static const char *patterns[] = {"lua[A-Z]\\w+", "(?i)error|fail(?:ure)?", "\\b(\\w+)\\s+\\1\\b", "^\\s*#\\s*define\\s+(\\w+)",
    "\"(?:[^\"\\\\]|\\\\.)*\"", "(?<=return )\\w+(?=;)", "[0-9]+(?:\\.[0-9]+)?", "(?m)/\\*.*?\\*/", "(?:if|while) \\((?!lua)[^)]+\\)",
    "\\p{Upper}{3,}", "(a(b|c)*d", "x{5,2}y"};
  for (int i = 0; i < 12; i++) {
    regex_t *r;
    OnigErrorInfo e;
    const UChar *p = (const UChar *)patterns[i];
    int rc = onig_new(&r, p, p + strlen(patterns[i]), ONIG_OPTION_DEFAULT, ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &e);
    if (rc != ONIG_NORMAL) {
      UChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
      onig_error_code_to_str(text, rc, &e);
      printf("%s: %s\n", patterns[i], text);
      continue;
    }
    OnigRegion *region = onig_region_new();
    int n = 0, long_sum = 0;
    for (UChar *at = in; at < end;) {
      int found = onig_search(r, in, end, at, end, region, ONIG_OPTION_NONE);
      if (found < 0) break;
      n++, long_sum += region->end[0] - region->beg[0];
      at = in + region->end[0] + (region->end[0] == region->beg[0]);
    }
    printf("%s: %d %d\n", patterns[i], n, long_sum);
    onig_region_free(region, 1);
    onig_free(r);
  }
}
