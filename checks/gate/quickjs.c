// What gate.sh runs of QuickJS: a program in its language, read from FILE.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "quickjs.h"
static JSValue print(JSContext *c, JSValueConst self, int n, JSValueConst *args) {
  const char *s = JS_ToCString(c, args[0]);
  if (s) puts(s);
  JS_FreeCString(c, s);
  return JS_UNDEFINED;
}
int main(int argc, char **argv) {
  FILE *f = fopen(argv[argc - 1], "rb");
  char *text = calloc(1, 100000);
  size_t n = fread(text, 1, 99999, f);
  JSRuntime *r = JS_NewRuntime();
  JSContext *c = JS_NewContext(r);
  JSValue global = JS_GetGlobalObject(c);
  JS_SetPropertyStr(c, global, "print", JS_NewCFunction(c, print, "print", 1));
  JSValue v = JS_Eval(c, text, n, "gate.js", JS_EVAL_TYPE_GLOBAL);
  if (JS_IsException(v)) v = JS_GetException(c);
  const char *s = JS_ToCString(c, v);
  puts(s ? s : "?");
  JS_FreeCString(c, s);
  JS_FreeValue(c, v);
  JS_FreeValue(c, global);
  JS_FreeContext(c);
  JS_FreeRuntime(r);
}
