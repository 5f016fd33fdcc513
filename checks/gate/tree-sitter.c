// What gate.sh runs of tree-sitter: FILE parsed as C, edited, parsed again, walked and queried.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tree_sitter/api.h>
const TSLanguage *tree_sitter_c(void);
int main(int argc, char **argv) {
  FILE *f = fopen(argv[argc - 1], "rb");
  char *in = malloc(60000);
  uint32_t n = fread(in, 1, 60000, f);
  TSParser *p = ts_parser_new();
  ts_parser_set_language(p, tree_sitter_c());
  TSTree *tree = ts_parser_parse_string(p, 0, in, n);
  memcpy(in + 1000, "int x; }", 8);
  TSInputEdit edit = {1000, 1008, 1008, {0, 1000}, {0, 1008}, {0, 1008}};
  ts_tree_edit(tree, &edit);
  TSTree *again = ts_parser_parse_string(p, tree, in, n);
  TSTreeCursor c = ts_tree_cursor_new(ts_tree_root_node(again));
  unsigned nodes = 0, depth = 0, deepest = 0;
  for (int up = 0;;) {
    if (!up) nodes++;
    if (!up && ts_tree_cursor_goto_first_child(&c)) { if (++depth > deepest) deepest = depth; continue; }
    up = 0;
    if (ts_tree_cursor_goto_next_sibling(&c)) continue;
    if (!ts_tree_cursor_goto_parent(&c)) break;
    depth--, up = 1;
  }
  const char *text = "(call_expression function: (identifier) @f) (if_statement condition: (_) @c)";
  uint32_t where, found = 0;
  TSQueryError error;
  TSQuery *q = ts_query_new(tree_sitter_c(), text, strlen(text), &where, &error);
  TSQueryCursor *qc = ts_query_cursor_new();
  ts_query_cursor_exec(qc, q, ts_tree_root_node(again));
  for (TSQueryMatch m; ts_query_cursor_next_match(qc, &m);) found++;
  char *s = ts_node_string(ts_tree_root_node(again));
  printf("%u nodes, depth %u, %u found, %zu characters\n", nodes, deepest, found, strlen(s));
}
