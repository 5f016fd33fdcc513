// What gate.sh runs of Hunspell: words of FILE looked up in DICTIONARY (AFF, DIC), and suggestions for a few.
#include <cstdio>
#include <fstream>
#include <string>
#include "hunspell.hxx"
int main(int argc, char **argv) {
  Hunspell h(argv[1], argv[2]);
  std::ifstream in(argv[3]);
  std::string word;
  unsigned n = 0, good = 0, suggested = 0, stems = 0;
  while (in >> word && n < 6000) {
    n++;
    if (h.spell(word)) good++, stems += n % 10 ? 0 : h.stem(word).size() + h.analyze(word).size();
    else if (n % 97 == 0 && word.size() < 12) suggested += h.suggest(word).size();
  }
  h.add("engraved");
  std::printf("%u %u %u %u %d\n", n, good, suggested, stems, h.spell("engraved"));
}
