//! Declarations of C, read: their specifiers and declarators.
//!
//! Bodies of functions are passed over; types and constants that declarations need are kept. The depth of
//! what may be nested is bounded, so that no text makes the stack overflow (lang-c 0.15, which was tried,
//! ends the process on 3,000 parentheses; it knows neither `__int128` nor a way to say which name is no
//! type).
//!
//! Source: ISO C17, 6.7 (declarations), A.2.2 (their grammar); GCC manual, "Extensions to the C Language".
#![warn(clippy::indexing_slicing)]

mod arithmetic;
mod attributes;
mod constants;
mod records;

use super::tokens::{Position, Token, tokens};
use super::{Prototype, PrototypeError};
use arithmetic::{arithmetic, is_arithmetic};
use attributes::Attributes;
use program::signature::{Parameter, Pointee, Read, Signature, Type};
use std::collections::HashMap;

type Result<T> = std::result::Result<T, PrototypeError>;

/// How deeply parentheses, braces and declarators may be nested.
const MOST_NESTED: u32 = 64;
/// No object is larger, in bytes: what a process can address.
const MOST_BYTES: u64 = 1 << 47;

/// A type, and what declarations say of it besides.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub kind: Type,
    /// In bytes, where a `typedef` gave it another one than its own.
    pub align: Option<u64>,
    /// A union that is passed as its first member is.
    pub is_transparent: bool,
}

impl Declared {
    pub fn plain(kind: Type) -> Declared {
        Declared { kind, align: None, is_transparent: false }
    }
}

/// What has been declared so far.
#[derive(Clone, Default, Debug)]
pub(super) struct Scope {
    pub typedefs: HashMap<String, Declared>,
    /// By `struct x`, `union x`, `enum x`; records without a tag by their name in the types.
    pub tags: HashMap<String, Declared>,
    pub constants: HashMap<String, i128>,
    /// `#pragma pack`, and what `push` keeps.
    pub pack: Vec<Option<u64>>,
    pub n_unnamed: u32,
}

impl Scope {
    /// The type itself, if only its name stands there.
    pub fn resolve(&self, kind: &Type) -> Type {
        match kind {
            Type::Named(name) => self.tags.get(name).map_or_else(|| kind.clone(), |d| d.kind.clone()),
            Type::Array { of, n } => Type::Array { of: Box::new(self.resolve(of)), n: *n },
            _ => kind.clone(),
        }
    }
}

/// A text, and how far it has been read.
pub(super) struct Parser {
    tokens: Vec<(Token, Position)>,
    next: usize,
    depth: u32,
    pub scope: Scope,
    pub found: Vec<Prototype>,
    /// What was not understood, where that is passed over.
    pub skipped: Vec<PrototypeError>,
}

/// What makes another type of the base type: the nearest to the name first.
enum Derivation {
    Pointer,
    /// None: no size is given.
    Array(Option<u64>),
    /// An array whose size is not known here, and why.
    Variable(PrototypeError),
    Function(Vec<Parameter>, bool),
}

/// A name and what stands around it.
struct Declarator {
    name: Option<String>,
    derivations: Vec<Derivation>,
    /// `:str`.
    is_text: bool,
    at: Position,
}

/// How a declaration begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    Typedef,
    Other,
}

const QUALIFIERS: &[&str] = &[
    "const",
    "volatile",
    "restrict",
    "register",
    "static",
    "extern",
    "inline",
    "auto",
    "_Noreturn",
    "noreturn",
    "_Thread_local",
    "thread_local",
    "__thread",
    "constexpr",
    "_Nonnull",
    "_Nullable",
    "_Null_unspecified",
    "__const",
    "__const__",
    "__volatile",
    "__volatile__",
    "__restrict",
    "__restrict__",
    "__inline",
    "__inline__",
    "__extension__",
    "_Atomic",
];

impl Parser {
    pub fn new(text: &str, scope: Scope) -> Parser {
        let (found, skipped) = (Vec::new(), Vec::new());
        Parser { tokens: tokens(text), next: 0, depth: 0, scope, found, skipped }
    }

    /// Reads all declarations. With `is_lenient`, what is not understood is passed over.
    pub fn all(&mut self, is_lenient: bool) -> Result<()> {
        while *self.peek() != Token::End {
            let start = self.next;
            self.depth = 0;
            if let Err(error) = self.external() {
                if !is_lenient {
                    return Err(error);
                }
                self.skipped.push(error);
                self.next = start;
                self.skip_declaration();
            }
        }
        Ok(())
    }

    pub fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |t| &t.0)
    }

    fn peek_second(&self) -> &Token {
        self.tokens.get(self.next + 1).map_or(&Token::End, |t| &t.0)
    }

    pub fn position(&self) -> Position {
        let last = self.tokens.get(self.next).or(self.tokens.last());
        last.map_or(Position { file: None, line: 1, column: 1 }, |t| t.1.clone())
    }

    pub fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    pub fn is_mark(&self, mark: &str) -> bool {
        matches!(self.peek(), Token::Mark(m) if *m == mark)
    }

    pub fn take_mark(&mut self, mark: &str) -> bool {
        let is = self.is_mark(mark);
        self.next += usize::from(is);
        is
    }

    pub fn take_word(&mut self, words: &[&str]) -> bool {
        let is = matches!(self.peek(), Token::Word(w) if words.contains(&w.as_str()));
        self.next += usize::from(is);
        is
    }

    pub fn expect(&mut self, mark: &'static str) -> Result<()> {
        if self.take_mark(mark) { Ok(()) } else { Err(self.unexpected(&format!("`{mark}`"))) }
    }

    pub fn unexpected(&self, want: &str) -> PrototypeError {
        let got = match self.peek() {
            Token::Word(word) => format!("`{word}`"),
            Token::Integer(n) => format!("`{n}`"),
            Token::Fraction => "a number".to_owned(),
            Token::Text => "a string".to_owned(),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::Pack(_) => "#pragma pack".to_owned(),
            Token::End => "the end".to_owned(),
        };
        PrototypeError::Unexpected { at: self.position(), got, want: want.to_owned() }
    }

    /// Runs `read` one level further down.
    pub fn nested<T>(&mut self, read: impl FnOnce(&mut Parser) -> Result<T>) -> Result<T> {
        if self.depth >= MOST_NESTED {
            return Err(PrototypeError::Nested { at: self.position(), most: MOST_NESTED });
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Passes over what stands between `open`, which is next, and its counterpart.
    pub fn skip_balanced(&mut self) {
        let mut depth = 0u32;
        loop {
            match self.take() {
                Token::Mark("(" | "[" | "{") => depth = depth.saturating_add(1),
                Token::Mark(")" | "]" | "}") => depth = depth.saturating_sub(1),
                Token::End => return,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Passes over the rest of a declaration, or of a definition.
    fn skip_declaration(&mut self) {
        loop {
            match self.peek() {
                Token::End => return,
                Token::Mark(";" | "}") => {
                    self.next += 1;
                    return;
                }
                Token::Mark("{") => {
                    self.skip_balanced();
                    if !matches!(self.peek(), Token::Mark(";" | "=" | ",") | Token::Word(_)) {
                        return;
                    }
                }
                Token::Mark("(" | "[") => self.skip_balanced(),
                _ => self.next += 1,
            }
        }
    }

    /// One declaration outside of functions.
    fn external(&mut self) -> Result<()> {
        if let Token::Pack(how) = self.peek() {
            let how = how.clone();
            self.next += 1;
            attributes::pack(&mut self.scope.pack, &how);
            return Ok(());
        }
        // `extern "C" {` and its end.
        let is_linkage = *self.peek_second() == Token::Text && self.take_word(&["extern"]);
        if is_linkage {
            self.next += 1;
        }
        if is_linkage && self.take_mark("{") || self.take_mark(";") || self.take_mark("}") {
            return Ok(());
        }
        if self.take_word(&["_Static_assert", "static_assert", "asm", "__asm__", "__asm"]) {
            self.skip_declaration();
            return Ok(());
        }
        let (storage, base, attributes) = self.specifiers(true)?;
        if self.take_mark(";") {
            return Ok(());
        }
        loop {
            let declarator = self.declarator()?;
            let own = self.attributes()?;
            let is_function = matches!(declarator.derivations.first(), Some(Derivation::Function(..)));
            let attributes = attributes.and(&own);
            self.declare(storage, &base, declarator, &attributes)?;
            if self.is_mark("{") && is_function {
                self.skip_balanced();
                return Ok(());
            }
            if self.take_mark("=") {
                while !matches!(self.peek(), Token::Mark("," | ";") | Token::End) {
                    if matches!(self.peek(), Token::Mark("(" | "[" | "{")) {
                        self.skip_balanced();
                    } else {
                        self.next += 1;
                    }
                }
            }
            if !self.take_mark(",") {
                // The last semicolon of a text may be left out.
                return if *self.peek() == Token::End { Ok(()) } else { self.expect(";") };
            }
        }
    }

    fn declare(
        &mut self,
        storage: Storage,
        base: &Declared,
        declarator: Declarator,
        attributes: &Attributes,
    ) -> Result<()> {
        let Declarator { name, mut derivations, is_text, at } = declarator;
        let Some(name) = name else {
            return Err(PrototypeError::Nameless { at });
        };
        if storage == Storage::Typedef {
            let mut declared = self.derived(base, known_sizes(derivations)?, attributes, &at)?;
            self.name_record(&mut declared, &name);
            declared.align = attributes.align.or(declared.align);
            declared.is_transparent |= attributes.is_transparent;
            self.scope.typedefs.insert(name, declared);
            return Ok(());
        }
        if !matches!(derivations.first(), Some(Derivation::Function(..))) {
            return Ok(());
        }
        let Derivation::Function(parameters, is_variadic) = derivations.remove(0) else { return Ok(()) };
        if attributes.is_foreign {
            return Err(PrototypeError::Convention { at, name });
        }
        let result = self.derived(base, derivations, attributes, &at)?;
        let result = self.complete(result.kind, &at)?;
        let mut result_reads = Vec::new();
        if is_text {
            result_reads.push(text_of("return", &result, &at)?);
        }
        let signature = Signature { name, parameters, result, result_reads, is_variadic };
        let prototype = Prototype { signature, file: at.file };
        // A header may declare a function again.
        match self.found.iter_mut().find(|p| p.signature.name == prototype.signature.name) {
            Some(before) => *before = prototype,
            None => self.found.push(prototype),
        }
        Ok(())
    }

    /// Gives a record the name that its `typedef` has, if it has none.
    fn name_record(&mut self, declared: &mut Declared, name: &str) {
        let old = match &mut declared.kind {
            Type::Record(record) if record.name.starts_with('<') => {
                std::mem::replace(&mut std::sync::Arc::make_mut(record).name, name.to_owned())
            }
            Type::Enum(e) if e.name.starts_with('<') => {
                std::mem::replace(&mut std::sync::Arc::make_mut(e).name, name.to_owned())
            }
            _ => return,
        };
        // `typedef struct {…} a, *b`: `b` speaks of it by the old name.
        self.scope.tags.insert(old, declared.clone());
        self.scope.tags.insert(name.to_owned(), declared.clone());
    }

    /// Fails if a value of this type would have unknown bytes.
    fn complete(&self, kind: Type, at: &Position) -> Result<Type> {
        let kind = self.scope.resolve(&kind);
        let mut inner = &kind;
        while let Type::Array { of, .. } = inner {
            inner = of;
        }
        match inner {
            Type::Named(name) => Err(PrototypeError::UnknownType { at: at.clone(), name: name.clone() }),
            _ => Ok(kind),
        }
    }

    /// The base type, made an array, a pointer, a function.
    fn derived(
        &self,
        base: &Declared,
        derivations: Vec<Derivation>,
        attributes: &Attributes,
        at: &Position,
    ) -> Result<Declared> {
        let mut declared = base.clone();
        declared.kind = attributes.applied_to(declared.kind, at)?;
        for derivation in derivations.into_iter().rev() {
            declared.kind = match derivation {
                Derivation::Pointer => {
                    declared = Declared::plain(declared.kind);
                    Type::Pointer(Box::new(by_name(declared.kind)))
                }
                size @ (Derivation::Array(_) | Derivation::Variable(_)) => {
                    let n = if let Derivation::Array(n) = size { n } else { None };
                    let array =
                        Type::Array { of: Box::new(self.scope.resolve(&declared.kind)), n: n.unwrap_or(0) };
                    if array.size() > MOST_BYTES || n.is_some_and(|n| n > MOST_BYTES) {
                        return Err(PrototypeError::TooLarge { at: at.clone() });
                    }
                    array
                }
                Derivation::Function(parameters, is_variadic) => {
                    let result = Box::new(by_name(declared.kind));
                    let parameters = parameters.into_iter().map(|p| by_name(p.kind)).collect();
                    declared = Declared::plain(Type::Void);
                    Type::Function { result, parameters, is_variadic }
                }
            };
        }
        Ok(declared)
    }

    /// What stands before the declarators. An unknown word is taken for a type where one must stand.
    fn specifiers(&mut self, is_type_needed: bool) -> Result<(Storage, Declared, Attributes)> {
        let mut storage = Storage::Other;
        let mut attributes = Attributes::default();
        let mut base: Option<Declared> = None;
        let mut words: Vec<String> = Vec::new();
        loop {
            attributes = attributes.and(&self.attributes()?);
            let Token::Word(word) = self.peek().clone() else { break };
            match word.as_str() {
                "typedef" => storage = Storage::Typedef,
                "_Atomic" if *self.peek_second() == Token::Mark("(") => {
                    self.next += 2;
                    base = Some(self.nested(Parser::type_name)?);
                    self.expect(")")?;
                    continue;
                }
                word if QUALIFIERS.contains(&word) => {}
                "struct" | "union" | "enum" => {
                    self.next += 1;
                    base = Some(self.nested(|this| match word.as_str() {
                        "enum" => records::enumeration(this),
                        kind => records::record(this, kind),
                    })?);
                    continue;
                }
                "typeof" | "__typeof__" | "__typeof" | "_BitInt" | "__auto_type" => {
                    self.next += 1;
                    base = Some(Declared::plain(Type::Named(word.clone())));
                    if self.is_mark("(") {
                        self.skip_balanced();
                    }
                    continue;
                }
                "complex" if self.is_complex(&words) => words.push(word),
                word if is_arithmetic(word) && base.is_none() => words.push(word.to_owned()),
                _ if base.is_some() || !words.is_empty() => break,
                _ => base = Some(self.named_type(&word)),
            }
            self.next += 1;
        }
        let base = match base {
            Some(base) => base,
            None if !words.is_empty() => Declared::plain(
                arithmetic(&words)
                    .ok_or_else(|| PrototypeError::NoType { at: self.position(), words: words.join(" ") })?,
            ),
            None if is_type_needed => return Err(self.unexpected("a type")),
            None => Declared::plain(Type::Integer { bytes: 4, is_signed: true }),
        };
        Ok((storage, base, attributes))
    }

    /// Whether `complex`, which is next, is the macro of `<complex.h>` and no name.
    fn is_complex(&self, words: &[String]) -> bool {
        let is_float = |word: &str| matches!(word, "float" | "double" | "long");
        words.iter().any(|w| is_float(w)) || matches!(self.peek_second(), Token::Word(w) if is_float(w))
    }

    fn named_type(&self, word: &str) -> Declared {
        let known = self.scope.typedefs.get(word).cloned();
        let mut known = known.unwrap_or_else(|| Declared::plain(Type::Named(word.to_owned())));
        known.kind = self.scope.resolve(&known.kind);
        known
    }

    /// Whether a type begins here, and no expression or name.
    pub fn is_type(&self) -> bool {
        let Token::Word(word) = self.peek() else { return false };
        self.scope.typedefs.contains_key(word)
            || is_arithmetic(word)
            || QUALIFIERS.contains(&word.as_str())
            || matches!(
                word.as_str(),
                "struct" | "union" | "enum" | "typeof" | "__typeof__" | "__attribute__"
            )
    }

    /// A type as casts have it.
    pub fn type_name(&mut self) -> Result<Declared> {
        let at = self.position();
        let (_, base, attributes) = self.specifiers(true)?;
        let declarator = self.declarator()?;
        self.derived(&base, declarator.derivations, &attributes, &at)
    }

    /// A constant expression's value.
    pub fn constant(&mut self) -> Result<i128> {
        self.nested(|this| constants::expression(this, 0))
    }

    fn attributes(&mut self) -> Result<Attributes> {
        attributes::attributes(self)
    }

    /// The fields that one declaration in a record names, to `each`.
    fn members(&mut self, each: &mut dyn FnMut(records::Declaration)) -> Result<()> {
        let (_, base, outer) = self.specifiers(true)?;
        if self.take_mark(";") {
            // An anonymous struct or union; a tag alone declares no field.
            if matches!(&base.kind, Type::Record(record) if record.name.starts_with('<')) {
                each(records::Declaration {
                    name: String::new(),
                    declared: base,
                    bits: None,
                    attributes: outer,
                });
            }
            return Ok(());
        }
        loop {
            let declarator = if self.is_mark(":") { None } else { Some(self.declarator()?) };
            let at = self.position();
            let bits = if self.take_mark(":") { Some(self.constant()?) } else { None };
            let attributes = outer.and(&self.attributes()?);
            let (name, derivations) = declarator.map_or((None, Vec::new()), |d| (d.name, d.derivations));
            let derivations = known_sizes(derivations)?;
            let mut declared = self.derived(&base, derivations, &attributes, &at)?;
            if !matches!(declared.kind, Type::Pointer(_)) {
                declared.kind = self.complete(declared.kind, &at)?;
            }
            each(records::Declaration { name: name.unwrap_or_default(), declared, bits, attributes });
            if !self.take_mark(",") {
                return self.expect(";");
            }
        }
    }

    fn declarator(&mut self) -> Result<Declarator> {
        self.nested(|this| {
            let mut n_pointers = 0;
            loop {
                this.attributes()?;
                // `^` is a pointer to a block of clang's, `&` a reference of C++'s.
                if this.take_mark("*") || this.take_mark("^") || this.take_mark("&") {
                    n_pointers += 1;
                } else if this.take_mark("&&") || this.take_word(QUALIFIERS) {
                    n_pointers += 0;
                } else {
                    break;
                }
            }
            if n_pointers > MOST_NESTED as usize {
                return Err(PrototypeError::Nested { at: this.position(), most: MOST_NESTED });
            }
            let at = this.position();
            let mut declarator = Declarator { name: None, derivations: Vec::new(), is_text: false, at };
            match this.peek().clone() {
                Token::Word(name) if !is_keyword(&name) => {
                    this.next += 1;
                    declarator.name = Some(name);
                }
                Token::Mark("(") if this.is_nested_declarator() => {
                    this.next += 1;
                    declarator = this.declarator()?;
                    this.expect(")")?;
                }
                _ => {}
            }
            this.suffixes(&mut declarator)?;
            declarator.derivations.extend((0..n_pointers).map(|_| Derivation::Pointer));
            if declarator.derivations.len() > MOST_NESTED as usize {
                return Err(PrototypeError::Nested { at: declarator.at, most: MOST_NESTED });
            }
            Ok(declarator)
        })
    }

    /// Whether the parenthesis that is next holds a declarator, and no parameters.
    fn is_nested_declarator(&self) -> bool {
        match self.peek_second() {
            Token::Mark("*" | "^" | "(" | "&") => true,
            Token::Word(word) => {
                !is_keyword(word) && !self.scope.typedefs.contains_key(word) || word.starts_with("__attr")
            }
            _ => false,
        }
    }

    fn suffixes(&mut self, declarator: &mut Declarator) -> Result<()> {
        loop {
            let at = self.next;
            if self.take_mark("[") {
                while self.take_word(QUALIFIERS) {}
                // `[n]`, where `n` is another parameter, or `[*]`, is as good as `[]` there, but nowhere
                // else.
                let depth = self.depth;
                let size = if self.is_mark("]") { Ok(None) } else { self.array_size().map(Some) };
                self.depth = depth;
                self.next = at;
                self.skip_balanced();
                declarator.derivations.push(size.map_or_else(Derivation::Variable, Derivation::Array));
            } else if self.is_mark("(") {
                self.next += 1;
                let (parameters, is_variadic) = self.nested(Parser::parameters)?;
                declarator.derivations.push(Derivation::Function(parameters, is_variadic));
            } else if self.is_mark(":") && *self.peek_second() == Token::Word("str".to_owned()) {
                self.next += 2;
                declarator.is_text = true;
            } else {
                return Ok(());
            }
        }
    }

    fn array_size(&mut self) -> Result<u64> {
        let size = self.constant()?;
        if !self.is_mark("]") {
            return Err(self.unexpected("`]`"));
        }
        u64::try_from(size).map_err(|_| PrototypeError::TooLarge { at: self.position() })
    }

    /// Parameters, and the parenthesis behind them.
    fn parameters(&mut self) -> Result<(Vec<Parameter>, bool)> {
        let mut found: Vec<Parameter> = Vec::new();
        if self.take_mark(")") {
            return Ok((found, false));
        }
        loop {
            if self.take_mark("...") {
                self.expect(")")?;
                return Ok((found, true));
            }
            let at = self.position();
            let (_, base, attributes) = self.specifiers(true)?;
            let declarator = self.declarator()?;
            let attributes = attributes.and(&self.attributes()?);
            let (name, is_text) = (declarator.name, declarator.is_text);
            let is_transparent = base.is_transparent && declarator.derivations.is_empty();
            let declared = self.derived(&base, declarator.derivations, &attributes, &at)?;
            if declared.kind == Type::Void && name.is_none() && found.is_empty() && self.take_mark(")") {
                return Ok((found, false));
            }
            let kind = match declared.kind {
                Type::Array { of, .. } => Type::Pointer(Box::new(by_name(*of))),
                function @ Type::Function { .. } => Type::Pointer(Box::new(function)),
                kind if is_transparent => first_member(kind),
                kind => self.complete(kind, &at)?,
            };
            if kind == Type::Void {
                return Err(PrototypeError::NoType { at, words: "void".to_owned() });
            }
            let name = name.unwrap_or_else(|| format!("a{}", found.len()));
            let reads = if is_text { vec![text_of(&name, &kind, &at)?] } else { Vec::new() };
            found.push(Parameter { name, kind, reads });
            if !self.take_mark(",") {
                self.expect(")")?;
                return Ok((found, false));
            }
        }
    }
}

/// A record that is only pointed to, by its name: its fields may point to itself.
fn by_name(kind: Type) -> Type {
    match kind {
        Type::Record(record) => Type::Named(record.name.clone()),
        kind => kind,
    }
}

/// Fails if the size of an array among them is not known.
fn known_sizes(derivations: Vec<Derivation>) -> Result<Vec<Derivation>> {
    let check = |derivation| match derivation {
        Derivation::Variable(error) => Err(error),
        known => Ok(known),
    };
    derivations.into_iter().map(check).collect()
}

fn first_member(kind: Type) -> Type {
    let Type::Record(record) = &kind else { return kind };
    record.fields.first().map_or_else(|| kind.clone(), |f| f.kind.clone())
}

fn text_of(name: &str, kind: &Type, at: &Position) -> Result<Read> {
    let Type::Pointer(_) = kind else {
        return Err(PrototypeError::NoPointer {
            at: at.clone(),
            name: name.to_owned(),
            kind: kind.to_string(),
        });
    };
    Ok(Read { name: format!("{name}:str"), within: 0, steps: vec![0], what: Pointee::Text })
}

fn is_keyword(word: &str) -> bool {
    const MORE: &[&str] = &[
        "typedef",
        "struct",
        "union",
        "enum",
        "typeof",
        "__typeof__",
        "__attribute__",
        "__attribute",
        "asm",
        "__asm__",
        "__asm",
        "sizeof",
        "_Alignas",
        "alignas",
        "return",
        "if",
        "while",
        "for",
        "do",
        "switch",
        "goto",
    ];
    is_arithmetic(word) && word != "bool" && word != "complex"
        || QUALIFIERS.contains(&word)
        || MORE.contains(&word)
}
