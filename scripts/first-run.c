/* The smallest Lua interpreter, for first-run.sh: runs the file it is given. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  int failed = luaL_dofile(L, argv[1]);
  if (failed) fprintf(stderr, "%s\n", lua_tostring(L, -1));
  lua_close(L);
  return failed;
}
