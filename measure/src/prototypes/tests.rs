//! What texts are read as, and what is said of those that are not understood.

use super::*;
use program::signature::Pointee;
use proptest::prelude::*;

/// The functions of a text, as C, with what is read of memory.
#[track_caller]
fn check(text: &str, want: &[&str]) {
    let prototypes = Prototypes::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let got: Vec<String> = prototypes.functions.iter().map(|p| shown(&p.signature)).collect();
    assert_eq!(got, want, "{text}");
}

fn shown(signature: &Signature) -> String {
    let reads = signature.parameters.iter().flat_map(|p| &p.reads).chain(&signature.result_reads);
    reads.fold(signature.to_string(), |text, read| {
        let what = match &read.what {
            Pointee::Text => "str".to_owned(),
            Pointee::Value(kind) => kind.to_string(),
        };
        format!("{text}; {} = {}+{:?} {what}", read.name, read.within, read.steps)
    })
}

/// Why a text is refused, and what helps.
#[track_caller]
fn refused(text: &str, want: &str) {
    let error = Prototypes::parse(text).expect_err(text);
    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    assert_eq!(format!("{error}{hint}"), want, "{text}");
}

/// As gcc 12 and clang 19 lay them out.
#[test]
fn a_bit_field_of_no_bits_leads_to_the_next_unit_of_its_type_whatever_is_packed() {
    for (fields, want) in [
        ("char c; unsigned : 0; int m : 11;", 6),
        ("char c; long : 0; char m : 3;", 9),
        ("double m1; int m2; unsigned long long m3 : 47; unsigned : 0; int m4 : 11;", 22),
    ] {
        for packed in ["", "__attribute__((packed))"] {
            let text =
                format!("#pragma pack(push, 1)\nstruct s {{ {fields} }} {packed};\nvoid f(struct s v);");
            let prototypes = Prototypes::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let signature = prototypes.function("f").expect("it is declared");
            assert_eq!(signature.parameters[0].kind.size(), want, "{text}");
        }
    }
}

#[test]
fn prototypes_are_read_as_c_has_them() {
    check("double exp(double x);", &["double exp(double x)"]);
    check("double exp(double)", &["double exp(double a0)"]);
    check(
        "void *memcpy(void *d, const void *s, size_t n);",
        &["void *memcpy(void *d, void *s, unsigned long n)"],
    );
    check(
        "int printf(const char *format:str, ...);",
        &["int printf(char *format, ...); format:str = 0+[0] str"],
    );
    check(
        "char *getenv(const char * :str):str;",
        &["char *getenv(char *a0); a0:str = 0+[0] str; return:str = 0+[0] str"],
    );
    check(
        "unsigned __int128 f(_Complex double z, long double complex)",
        &["unsigned __int128 f(_Complex double z, _Complex long double a1)"],
    );
    check("int a(void), *b(int), c();", &["int a(void)", "int *b(int a0)", "int c(void)"]);
    check(
        "void qsort(void *b, size_t n, size_t s, int (*compare)(const void *, const void *));",
        &["void qsort(void *b, unsigned long n, unsigned long s, int (*compare)(void *, void *))"],
    );
    check(
        "void (*signal(int s, void (*handler)(int)))(int);",
        &["void (*signal(int s, void (*handler)(int)))(int)"],
    );
    check(
        "void f(int a[static const 3], int m[][4], va_list l, FILE *file, unknown_t *u);",
        &["void f(int *a, int (*m)[4], struct __va_list_tag *l, struct _IO_FILE *file, unknown_t *u)"],
    );
    check(
        "extern \"C\" { int f(int); }\n/* no ; */ static inline int g(int x) { return x; /* } */ } // end",
        &["int f(int a0)", "int g(int x)"],
    );
    check(
        "struct p { double x, y; }; struct p mid(struct p a, struct p *b); typedef struct { int i; } q; q f(q);",
        &["struct p mid(struct p a, struct p *b)", "q f(q a0)"],
    );
    check(
        "enum e { a, b = sizeof(long) << 2, c } ; enum e f(enum e x, int (*m)[c]);",
        &["enum e f(enum e x, int (*m)[33])"],
    );
    check("extern int f(int) __asm__(\"g\") __attribute__((nothrow, nonnull(1)));", &["int f(int a0)"]);
    check("bool f(bool complex, uint8_t x)", &["_Bool f(_Bool complex, unsigned char x)"]);
}

#[test]
fn what_is_not_understood_is_named_with_its_place_and_remedy() {
    refused(
        "int f(foo_t x);",
        "line 1, column 7: the type `foo_t` is not known; declare it in front: typedef … foo_t; or give its header \
         with --header",
    );
    refused(
        "\n struct s f(int);",
        "line 2, column 11: the type `struct s` is not known; declare it in front: struct s { …; };",
    );
    refused("int f(int x", "line 1, column 12: the end where `)` should stand");
    refused(
        "int x;",
        "no function is declared in `int x;`; a prototype looks like this: double exp(double x);",
    );
    refused(
        "long double long f(void);",
        "line 1, column 18: `long double long` is no type that a value can have here",
    );
    refused("void f(double x:str);", "line 1, column 8: `x` is a double, which points to no text");
    refused(
        "int __attribute__((ms_abi)) f(int);",
        "line 1, column 29: `f` keeps to another calling convention than the System V ABI's",
    );
    refused(&format!("int f(int {}", "(".repeat(5000)), "line 1, column 73: nested more than 64 deep");
    refused(
        &format!("int f(int a[{}1{}]);", "(".repeat(5000), ")".repeat(5000))
            .replace("int f(int a[", "struct s { int a["),
        "line 1, column 49: nested more than 64 deep",
    );
}

/// The signature with what was asked to be read.
fn with_reads(text: &str, requests: &[&str]) -> Result<String, PrototypeError> {
    let prototypes = Prototypes::parse(text)?;
    let mut signature = prototypes.functions.first().expect("one is declared").signature.clone();
    for request in requests {
        prototypes.read(&mut signature, request)?;
    }
    Ok(shown(&signature).split_once("; ").map_or_else(String::new, |(_, reads)| reads.to_owned()))
}

#[test]
fn memory_is_read_by_expressions_over_parameters() {
    const NODE: &str = "struct node { int n; union { struct node *next; long key; }; char text[8]; short *more[2]; };
        struct holder { long id; struct node *first; }; struct node *f(struct node *p, double *d, struct holder h);";
    let check = |requests: &[&str], want: &str| {
        assert_eq!(
            with_reads(NODE, requests).unwrap_or_else(|error| error.to_string()),
            want,
            "{requests:?}"
        );
    };
    check(
        &["*d", "d[2]", "d[0..2]"],
        "*d = 0+[0] double; d[2] = 0+[16] double; d[0] = 0+[0] double; d[1] = 0+[8] double",
    );
    check(&["p->n", "p->next->next->key"], "p->n = 0+[0] int; p->next->next->key = 0+[8, 8, 8] long");
    check(
        &["p->text:str", "p->more[1][3]", "**p->more"],
        "p->text:str = 0+[16] str; p->more[1][3] = 0+[32, 6] short; **p->more = 0+[24, 0] short",
    );
    check(
        &["h.first->n", "(*h.first).n", "*p", "return->n"],
        "*p = 0+[0] struct node; h.first->n = 8+[0] int; (*h.first).n = 8+[0] int; return->n = 0+[0] int",
    );
    check(&["d->x"], "`d->x` of f: `double` has no field `x`");
    check(&["q"], "`q` of f: no parameter is called `q` (there are: p, d, h)");
    check(&["h.id"], "`h.id` of f: it is passed itself: nothing is to be read of memory");
    check(&["*h"], "`*h` of f: `h` is of type `struct holder`, no pointer");
    check(&["d[0..5000]"], "`d[0..5000]` of f: 0..5000 are not 1 to 1024 values");
    let of_unknown =
        with_reads("void f(struct s *p);", &["p->x"]).expect_err("its fields are not known").to_string();
    assert_eq!(
        of_unknown,
        "`p->x` of f: of `struct s` only the name is known: declare its fields in front, or give its header"
    );
}

#[test]
fn a_header_is_read_through_the_preprocessor() {
    let folder = tempfile::tempdir().expect("a folder for the test's files");
    let path = folder.path().join("-h.h");
    let text = "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/socket.h>\n#include <complex.h>
        #define T double\ntypedef struct { T x; } point;\n T length(point p);\n what is this;\nint last(void);";
    std::fs::write(&path, text).expect("the folder can be written");
    let header = Prototypes::load_header(&path).expect("the compiler is there");
    assert_eq!(header.function("length").map(ToString::to_string).as_deref(), Some("double length(point p)"));
    assert_eq!(header.function("last").map(ToString::to_string).as_deref(), Some("int last(void)"));
    assert_eq!(
        header.function("cexp").map(ToString::to_string).as_deref(),
        Some("_Complex double cexp(_Complex double __z)")
    );
    assert!(header.functions.len() > 600, "{} functions", header.functions.len());
    assert_eq!(header.skipped.len(), 1, "{:?}", header.skipped);
    let own =
        header.functions.iter().filter(|p| p.file.as_deref().is_some_and(|file| file.ends_with("-h.h")));
    assert_eq!(own.count(), 2);
    let more = header.parse_with("point moved(point p, div_t);").expect("its types are known");
    assert_eq!(more.functions.len(), 1);
}

const WORDS: &[&str] = &[
    "int",
    "f",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "*",
    ",",
    ";",
    ":",
    "struct",
    "union",
    "enum",
    "s",
    "typedef",
    "long",
    "double",
    "_Complex",
    "...",
    "=",
    "1",
    "0x7fffffffffffffffffffffffffffffff",
    "-",
    "/",
    "%",
    "<<",
    "sizeof",
    "__attribute__((",
    "))",
    "packed",
    "aligned(",
    "vector_size(",
    "#pragma pack(push, 1)\n",
    "#pragma pack()\n",
    "?",
    "str",
    "'\\x",
    "\"",
    "\\\n",
    "/*",
    "const",
    "static",
    "extern",
    "\"C\"",
    "x",
    "void",
    "char",
    "__int128",
    "mode(TI)",
    "->",
    ".",
    "..",
    "p",
    "return",
    "# 1 \"a\"\n",
    "_Alignas(",
    "asm(",
    "unsigned",
    "18446744073709551615",
];

proptest! {
    #[test]
    fn no_text_makes_it_panic(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..60), odd in ".{0,20}") {
        let text = words.join(" ");
        for text in [format!("{text}{odd}"), format!("{odd}{text}"), format!("struct s {{ int a; }}; int f(struct s *p, {text})")] {
            if let Ok(prototypes) = Prototypes::parse(&text) {
                for prototype in &prototypes.functions {
                    let passing = program::arch::abi::arguments::passing(&prototype.signature);
                    prop_assert_eq!(passing.parameters.len(), prototype.signature.parameters.len());
                    let mut signature = prototype.signature.clone();
                    let _ = prototypes.read(&mut signature, &text);
                    let _ = prototypes.read(&mut signature, &format!("p{text}"));
                }
            }
            Prototypes::of(&text, true).expect("what is not understood is passed over");
        }
    }
}
